package ota

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/edgehub-io/edgehub/ota"
	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

const namespace = "default"

// startCluster starts a control plane with two nodes that no kubelet looks
// after.
func startCluster(t *testing.T) (*cluster.Cluster, kubernetes.Interface) {
	t.Helper()
	c, admin := startControlPlane(t)
	for _, name := range []string{"node1", "node2"} {
		makeNode(t, admin, name)
	}
	return c, admin
}

// startControlPlane starts one without nodes, with these arguments of the apiserver.
func startControlPlane(t *testing.T, apiServerArgs ...string) (*cluster.Cluster, kubernetes.Interface) {
	t.Helper()
	c, err := cluster.Start(t.Context(), cluster.Options{Dir: t.TempDir(), Log: t.Output(), APIServerArgs: apiServerArgs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	transport := transportFor(t, c.AdminConfig())
	admin, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: c.ServerURL(), QPS: -1}, &http.Client{Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	return c, admin
}

// transportFor has connections of its own, closed with the test: the cluster
// is stopped, and goroutines counted, after that.
func transportFor(t *testing.T, config *rest.Config) *http.Transport {
	t.Helper()
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

func makeNode(t *testing.T, admin kubernetes.Interface, name string) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	if _, err := admin.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	room := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("8Gi")}
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the node controller has its say, too
		node, err := admin.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		node.Status.Capacity, node.Status.Allocatable = room, room
		_, err = admin.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// api is one node's API.
type api struct {
	url       string
	deletions atomic.Int64 // accepted by the apiserver, dry runs and all
}

// startAPI starts the API of a node, which talks to the apiserver as that node.
func startAPI(t *testing.T, c *cluster.Cluster, node, identity string) *api {
	t.Helper()
	cert, key, err := c.ClientCert("system:node:"+identity, "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	a := new(api)
	transport := transportFor(t, &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: c.CAFile(), CertFile: cert, KeyFile: key}})
	pods, err := ota.NewPods(&rest.Config{Host: c.ServerURL(), Transport: a.counting(transport)})
	if err != nil {
		t.Fatal(err)
	}
	h, err := ota.New(ota.Options{NodeName: node, Pods: pods})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	a.url = server.URL
	return a
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (a *api) counting(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		if err == nil && r.Method == http.MethodDelete && resp.StatusCode < 300 {
			a.deletions.Add(1)
		}
		return resp, err
	})
}

// answer is what a caller gets to see.
type answer struct {
	code int
	body string
	err  error
}

func (a answer) String() string {
	if a.err != nil {
		return a.err.Error()
	}
	return fmt.Sprintf("%d %q", a.code, a.body)
}

func (a *api) call(ctx context.Context, method, path string) answer {
	req, err := http.NewRequestWithContext(ctx, method, a.url+path, http.NoBody)
	if err != nil {
		return answer{err: err}
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, string(body), err}
}

func (a *api) upgrade(ctx context.Context, pod string) answer {
	return a.call(ctx, http.MethodPost, "/openyurt.io/v1/namespaces/"+namespace+"/pods/"+pod+"/upgrade")
}

// expect fails the test unless got has this code and this text.
func expect(t *testing.T, got answer, code int, says string) {
	t.Helper()
	if got.err != nil || got.code != code || !strings.Contains(got.body, says) {
		t.Errorf("got %s, want %d and %q", got, code, says)
	}
}

// podTemplate is one that fits any node, also while it is not ready.
func podTemplate(labels map[string]string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers:  []corev1.Container{{Name: "app", Image: "app.invalid/app:v1"}},
		},
	}
}

// daemonPods makes a DaemonSet and returns its pods by node.
func daemonPods(t *testing.T, admin kubernetes.Interface, name string) map[string]*corev1.Pod {
	t.Helper()
	labels := map[string]string{"app": name}
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DaemonSetSpec{
			Selector:       &metav1.LabelSelector{MatchLabels: labels},
			Template:       podTemplate(labels),
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType},
		},
	}
	if _, err := admin.AppsV1().DaemonSets(namespace).Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return waitForPods(t, admin, name, 2)
}

// waitForPods returns the pods with the label app once n of them are on nodes
// and none is being deleted.
func waitForPods(t *testing.T, admin kubernetes.Interface, app string, n int) map[string]*corev1.Pod {
	t.Helper()
	byNode := map[string]*corev1.Pod{}
	poll.Eventually(t, fmt.Sprintf("%d pods of %s are on nodes", n, app), func() bool {
		clear(byNode)
		list, err := admin.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
		if err != nil {
			t.Fatal(err)
		}
		for i, pod := range list.Items {
			if pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil {
				byNode[pod.Spec.NodeName] = &list.Items[i]
			}
		}
		return len(byNode) == n
	})
	return byNode
}

// setConditions gives pod these conditions, as controller and hub would.
func setConditions(t *testing.T, admin kubernetes.Interface, pod *corev1.Pod, conditions ...corev1.PodCondition) {
	t.Helper()
	poll.Eventually(t, "the conditions of pod "+pod.Name+" are set", func() bool {
		fresh, err := admin.CoreV1().Pods(namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		fresh.Status.Conditions = append(fresh.Status.Conditions, conditions...)
		_, err = admin.CoreV1().Pods(namespace).UpdateStatus(t.Context(), fresh, metav1.UpdateOptions{})
		return err == nil // else a controller was quicker
	})
}
