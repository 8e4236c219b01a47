package e2e

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/test/cluster/images"
	"github.com/edgehub-io/edgehub/test/cluster/link"
)

const (
	systemNamespace = "edgehub-system"
	controllerName  = "edgehub-controller"
)

// TestTheDeployedControllerWorks applies deploy/ as an admin does, with another image,
// and has no other controller run meanwhile.
func TestTheDeployedControllerWorks(t *testing.T) {
	if err := env.ControllerProcess().Stop(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.ControllerProcess().Start(context.Background()); err != nil {
			t.Error(err)
		}
	})
	serveKubernetesService(t)
	repository, tag := pushController(t)
	applyDeploy(t, repository, tag)
	pods := controllerPods(t, "")
	for _, pod := range pods {
		if c := pod.Spec.Containers[0].SecurityContext; c.ReadOnlyRootFilesystem == nil || !*c.ReadOnlyRootFilesystem {
			t.Errorf("pod %s can write to its root", pod.Name)
		}
	}
	if pods[0].Spec.NodeName == pods[1].Spec.NodeName {
		t.Errorf("both replicas are on %s", pods[0].Spec.NodeName)
	}

	ns := namespace(t, "deployed-ota")
	createDaemonSet(t, ns, otaDaemonSet("app"))
	node := env.Node("node1")
	pod := readyPodOn(t, ns, "node1", "")
	needs(t, node, pod, corev1.ConditionFalse)

	first := leader(t, "")
	if err := env.client.CoreV1().Pods(systemNamespace).Delete(t.Context(), first, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	leader(t, first)
	setVersion(t, ns, "app", "v2")
	needs(t, node, pod, corev1.ConditionTrue)
	controllerPods(t, first)
}

// serveKubernetesService is kube-proxy for the Service kubernetes, of which there is
// none in this cluster: its address, which kubelet passes to pods and which the
// apiserver's certificate has, leads to the apiserver. It is on node1's bridge, and
// goes with that in the end; so pods are what deploy/ makes them, but for the image.
// NetworkPolicies are not tested: the network plugin of this cluster knows none.
func serveKubernetesService(t *testing.T) {
	t.Helper()
	service, err := env.client.CoreV1().Services(corev1.NamespaceDefault).Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	apiserver, err := url.Parse(env.ServerURL())
	if err != nil {
		t.Fatal(err)
	}
	address := []string{"address", "CHANGE", service.Spec.ClusterIP + "/32", "dev", bridgeOf(t, env.Node("node1").IP())}
	change := func(ctx context.Context, how string) {
		address[1] = how
		if out, err := exec.CommandContext(ctx, "ip", address...).CombinedOutput(); err != nil {
			t.Errorf("ip %s: %v: %s", strings.Join(address, " "), err, out)
		}
	}
	change(t.Context(), "add")
	t.Cleanup(func() { change(context.Background(), "delete") })
	forward, err := link.Listen(net.JoinHostPort(service.Spec.ClusterIP, "443"), apiserver.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := forward.Close(); err != nil {
			t.Error(err)
		}
	})
}

// bridgeOf is the interface that has an address.
func bridgeOf(t *testing.T, address string) string {
	t.Helper()
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for i := range interfaces {
		addresses, err := interfaces[i].Addrs()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range addresses {
			if n, ok := a.(*net.IPNet); ok && n.IP.String() == address {
				return interfaces[i].Name
			}
		}
	}
	t.Fatalf("no interface has the address %s", address)
	return ""
}

// pushController makes an image of bin/edgehub-controller, and returns repository and
// tag.
func pushController(t *testing.T) (repository, tag string) {
	t.Helper()
	program, err := images.NewProgram(filepath.Join(binaries, controllerName), controllerName)
	if err != nil {
		t.Fatal(err)
	}
	image, err := program.Build(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	tag = "deployed"
	if err := env.Registry().Push(t.Context(), controllerName, tag, image); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(env.Registry().Reference(controllerName, tag), ":"+tag), tag
}

// applyDeploy is kubectl apply -k with a kustomization of the admin's own, which names
// the image.
func applyDeploy(t *testing.T, repository, tag string) {
	t.Helper()
	folder, deploy := t.TempDir(), filepath.Join("..", "..", "deploy")
	from, err := filepath.EvalSymlinks(folder)
	if err != nil {
		t.Fatal(err)
	}
	to, err := filepath.Abs(deploy)
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(from, to)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("resources: [%q]\nimages: [{name: edgehub/edgehub-controller, newName: %q, newTag: %q}]\n", relative, repository, tag)
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := env.Kubectl(t.Context(), "apply", "--warnings-as-errors", "-k", folder); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // and leave the rights, which the cluster's own controller has, too
		for _, args := range [][]string{
			{"delete", "deployment", controllerName},
			{"wait", "pod", "--for=delete", "--selector=app.kubernetes.io/name=" + controllerName, "--timeout=120s"},
		} {
			if out, err := env.Kubectl(context.Background(), append([]string{"-n", systemNamespace}, args...)...); err != nil {
				t.Error(out, err)
			}
		}
	})
}

// controllerPods waits for two replicas that are Ready, without the one named not.
func controllerPods(t *testing.T, not string) []corev1.Pod {
	t.Helper()
	var ready []corev1.Pod
	eventually(t, "two replicas are Ready", func(ctx context.Context) string {
		pods, err := env.client.CoreV1().Pods(systemNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + controllerName})
		if err != nil {
			return err.Error()
		}
		ready = nil
		var states []string
		for i := range pods.Items {
			pod := &pods.Items[i]
			if isReady(pod) && pod.Name != not {
				ready = append(ready, *pod)
			}
			states = append(states, fmt.Sprintf("%s is %s (%+v)", pod.Name, pod.Status.Phase, pod.Status.ContainerStatuses))
		}
		if len(ready) != 2 {
			return strings.Join(states, "; ")
		}
		return ""
	})
	return ready
}

// leader waits for a pod that has the lease and is not the one named not.
func leader(t *testing.T, not string) (pod string) {
	t.Helper()
	eventually(t, "a replica leads", func(ctx context.Context) string {
		lease, err := env.client.CoordinationV1().Leases(systemNamespace).Get(ctx, controllerName, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if lease.Spec.HolderIdentity == nil {
			return "nobody does"
		}
		if pod, _, _ = strings.Cut(*lease.Spec.HolderIdentity, "_"); pod == "" || pod == not {
			return fmt.Sprintf("%q has the lease", *lease.Spec.HolderIdentity)
		}
		return ""
	})
	return pod
}
