package callers

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

func allow(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "reader"}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}}}
	if _, err := client.RbacV1().Roles("default").Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "reader", Namespace: "default"}},
	}
	if _, err := client.RbacV1().RoleBindings("default").Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// hubFlags are those of a hub without a cloud, in a folder of its own.
func hubFlags(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "t"}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return []string{"--node-name=n", "--kubeconfig=" + kubeconfig, "--root-dir=" + dir, "--proxy-port=10261", "--container-runtime-endpoint=", "--shutdown-grace-period=1s"}
}

// startBare runs a hub that does not start, and returns what it prints.
func startBare(t *testing.T, command []string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	command = append(command, hubFlags(t)...)
	out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	if err == nil || ctx.Err() != nil {
		t.Fatalf("the hub started: %v\n%s", err, out)
	}
	return string(out)
}

// namespace is a network of its own, with a caller in it.
type namespace struct{ *caller }

func newNamespace(t *testing.T) namespace {
	t.Helper()
	return namespace{newCaller(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET})}
}

func (n namespace) enter() []string {
	return []string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", n.pid), "--"}
}

// sh runs commands in the namespace. Settings of the kernel below net are its own.
func (n namespace) sh(script string) {
	n.t.Helper()
	out, err := exec.Command("nsenter", append(n.enter()[1:], "sh", "-euc", script)...).CombinedOutput()
	if err != nil {
		n.t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// startHub starts a hub in the namespace, which ends with the test.
func (n namespace) startHub(flags []string) {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(n.t.Context()))
	command := append(append(n.enter(), env.hubBin), flags...)
	hub := exec.CommandContext(ctx, command[0], command[1:]...)
	var log strings.Builder
	hub.Stdout, hub.Stderr = &log, &log
	if err := hub.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		cancel()
		_ = hub.Wait() // killed
		if n.t.Failed() {
			n.t.Log(log.String())
		}
	})
}

// A program in another network can reach loopback where route_localnet is set, as
// kube-proxy does for node ports. It is root here, and in no container by its group:
// only its socket shows it.
func TestAPeerInAnotherNetworkIsRefused(t *testing.T) {
	needRoot(t)
	node, pod := newNamespace(t), newNamespace(t)
	node.sh(fmt.Sprintf(`ip link set lo up
ip link add veth0 type veth peer name eth0 netns %d
ip addr add 198.18.255.1/24 dev veth0
ip link set veth0 up
echo 1 >/proc/sys/net/ipv4/conf/veth0/route_localnet`, pod.pid))
	pod.sh(`ip addr add 198.18.255.2/24 dev eth0
ip link set eth0 up
echo 1 >/proc/sys/net/ipv4/conf/eth0/route_localnet
ip route add 127.0.0.1/32 via 198.18.255.1 dev eth0 src 198.18.255.2`)
	node.startHub(hubFlags(t))
	const url = "http://127.0.0.1:10261/api/v1/pods"
	var out outcome
	poll.Until(t, patience, "the hub answers the node's own program", func() bool {
		out = node.do(order{Get: url})
		return out.Code != 0
	})
	if out.Code != http.StatusServiceUnavailable { // it is let in, and there is no cloud
		t.Errorf("the node's own program got %d %s", out.Code, out.Body)
	}
	const why = "198.18.255.2:40000 is not an address of a program in this machine's own network"
	wantRefused(t, pod.do(order{Get: url, From: 40000}), why)
	// Whoever listens at the peer's port here is not the peer.
	if out := node.do(order{Listen: "0.0.0.0:40001"}); out.Err != "" {
		t.Fatal(out.Err)
	}
	wantRefused(t, pod.do(order{Get: url, From: 40001}), strings.Replace(why, "40000", "40001", 1))
}
