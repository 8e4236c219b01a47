package cluster_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/test/cluster"
)

func TestContainersThatAreKilledAndNodesThatLosePowerComeBack(t *testing.T) {
	cluster.NeedRoot(t)
	c := start(t, cluster.Options{Dir: t.TempDir(), Nodes: 1, HubBin: buildHub(t), Log: t.Output()})
	podsAnswer(t, c)
	node := c.Node("node1")
	pod := podOf(t, c)
	first := instance(t, pod)

	if err := node.KillContainer(pod.Status.ContainerStatuses[0].ContainerID); err != nil {
		t.Fatal(err)
	}
	second := nextInstance(t, c, first)

	if err := node.KillContainer("containerd://nobody"); err == nil {
		t.Error("a container that is not there was killed")
	}

	boot := bootOf(t, c)
	if err := node.PowerOff(); err != nil {
		t.Fatal(err)
	}
	if again := instance(t, pod); again != "" {
		t.Errorf("without power the pod still answers: %s", again)
	}
	if err := node.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}
	nextInstance(t, c, second)
	hubs := strings.TrimSpace(readFile(t, fmt.Sprintf("/proc/%d/root/proc/sys/kernel/random/boot_id", node.HubProcess().PID())))
	if hubs == boot {
		t.Errorf("the hub sees the boot %s as before", boot)
	}
	for began := time.Now(); bootOf(t, c) != hubs; time.Sleep(100 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("after a minute kubelet reports the boot %s, and the hub sees %s", bootOf(t, c), hubs)
		}
	}
}

// bootOf is the boot ID that the node's kubelet reports.
func bootOf(t *testing.T, c *cluster.Cluster) string {
	t.Helper()
	node, err := clientFor(t, c.AdminConfig()).CoreV1().Nodes().Get(t.Context(), "node1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return node.Status.NodeInfo.BootID
}

func podOf(t *testing.T, c *cluster.Cluster) *corev1.Pod {
	t.Helper()
	pod, err := clientFor(t, c.AdminConfig()).CoreV1().Pods("default").Get(t.Context(), "app-node1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// instance is what the pod's present container says it is; nothing if none answers.
func instance(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	dialer := &net.Dialer{Timeout: 500 * time.Millisecond} // less than the client's, after which it would go on by itself
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dialer.DialContext}, Timeout: time.Second}
	res, err := client.Get("http://" + pod.Status.PodIP + ":8080/instance")
	if err != nil {
		return ""
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		return ""
	}
	return string(text)
}

// nextInstance waits for another container of the same pod.
func nextInstance(t *testing.T, c *cluster.Cluster, before string) string {
	t.Helper()
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(100 * time.Millisecond) {
		if now := instance(t, podOf(t, c)); now != "" && now != before {
			return now
		}
	}
	t.Fatal("after a minute no other container of the pod answers")
	return ""
}
