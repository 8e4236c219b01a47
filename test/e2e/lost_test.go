package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

// A pod whose successor would not come is not deleted, and one that did not come back is shown, and comes back once it can.
func TestNoAppIsLostByAnUpgrade(t *testing.T) {
	ns := namespace(t, "lost")
	node1, node2 := env.Node("node1"), env.Node("node2")
	ds := otaDaemonSet("app")
	ds.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "h", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp"}}}}
	createDaemonSet(t, ns, ds)
	old1, old2 := readyPodOn(t, ns, "node1", ""), readyPodOn(t, ns, "node2", "")
	setVersion(t, ns, "app", "v2")
	kubectl := func(args ...string) {
		t.Helper()
		if out, err := env.Kubectl(t.Context(), append([]string{"-n", ns}, args...)...); err != nil {
			t.Fatal(out, err)
		}
	}
	refused := func(words string) {
		t.Helper()
		needs(t, node1, old1, corev1.ConditionTrue)
		eventually(t, "the upgrade is refused: "+words, func(ctx context.Context) string {
			code, body := rawclient.Ask(ctx, http.MethodPost, upgradeURL(node1, ns, old1.Name))
			if code == http.StatusOK {
				t.Fatal("the pod was deleted")
			}
			if code != http.StatusForbidden || !strings.Contains(body, "would not come back: "+words) {
				return fmt.Sprintf("%d %s", code, body)
			}
			return ""
		})
	}
	missing := func(node *cluster.Node, want string) { // "" is nothing
		t.Helper()
		eventually(t, fmt.Sprintf("%s says of the app that it lacks: %q", node.Name(), want), func(ctx context.Context) string {
			code, body := rawclient.Ask(ctx, http.MethodGet, node.APIURL()+api.Node)
			var state api.NodeState
			if err := json.Unmarshal([]byte(body), &state); code != http.StatusOK || err != nil {
				return fmt.Sprintf("%d %s", code, body)
			}
			why := ""
			for _, m := range state.Missing {
				if m.Namespace == ns {
					why = m.Why
				}
			}
			if (why == "") != (want == "") || !strings.Contains(why, want) {
				return body
			}
			return ""
		})
	}

	const violates = `violates PodSecurity "baseline:latest": hostPath volumes`
	kubectl("label", "namespace", ns, "pod-security.kubernetes.io/enforce=baseline")
	refused("the apiserver refuses the new version: " + violates)
	kubectl("delete", "pod", old2.Name)
	missing(node2, violates)
	answers(t, old1, "v1")
	kubectl("label", "namespace", ns, "pod-security.kubernetes.io/enforce-")
	begin := time.Now()
	eventually(t, "node2 has its pod", func(ctx context.Context) string {
		pods, err := env.client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=node2"})
		if err == nil && len(pods.Items) == 0 {
			return "there is none"
		}
		return words(err)
	})
	t.Logf("node2 has its pod %v after admission lets it in", time.Since(begin).Round(100*time.Millisecond))
	answers(t, readyPodOn(t, ns, "node2", old2.UID), "v2")
	missing(node2, "")

	// What admission adds counts.
	limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "large"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, DefaultRequest: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("500Gi")},
	}}}}
	if _, err := env.client.CoreV1().LimitRanges(ns).Create(t.Context(), limits, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	refused("the new version requests 500Gi of memory")
	kubectl("delete", "limitrange", limits.Name)
	eventually(t, "the upgrade goes on", func(ctx context.Context) string {
		code, body := rawclient.Ask(ctx, http.MethodPost, upgradeURL(node1, ns, old1.Name))
		if code != http.StatusOK {
			return fmt.Sprintf("%d %s", code, body)
		}
		return ""
	})
	answers(t, readyPodOn(t, ns, "node1", old1.UID), "v2")
}

// rewriting has the apiserver rewrite images of new pods in a namespace, as policies and webhooks do that lead nodes to a
// registry on their site.
const rewriting = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: NAMESPACE}
spec:
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: '[JSONPatch{op: "replace", path: "/spec/containers/0/image", value: object.spec.containers[0].image.replace("hub.example.com/", "REGISTRY/")}]'
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: NAMESPACE}
spec:
  policyName: NAMESPACE
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}}
`

// What is pulled ahead is what admission makes of the template, which names a registry that the node does not reach.
func TestWhatIsPulledIsWhatIsAdmitted(t *testing.T) {
	d := newDaemon(t, "admitted", "node1")
	d.next = "one"
	d.image, d.layer = pushApp(t, d.ns, d.next, megabyte)
	registry, path, _ := strings.Cut(d.image, "/")
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(strings.NewReplacer("NAMESPACE", d.ns, "REGISTRY", registry).Replace(rewriting)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := env.Kubectl(t.Context(), "apply", "-f", file); err != nil {
		t.Fatal(out, err)
	}
	t.Cleanup(func() { _, _ = env.Kubectl(context.Background(), "delete", "-f", file) })
	template := "hub.example.com/" + path
	eventually(t, "a new pod has the image "+d.image, func(ctx context.Context) string {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "another"}, Spec: podTemplate().Spec}
		pod.Spec.Containers[0].Image = template
		pod, err := env.client.CoreV1().Pods(d.ns).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && pod.Spec.Containers[0].Image != d.image {
			return pod.Spec.Containers[0].Image
		}
		return words(err)
	})
	setImage(t, d.ns, "app", template)
	d.awaitMark()
	d.pull()
	d.awaitReady()
	env.Registry().Forget()
	d.upgrade()
	d.expectNothingFetched()
	if got := d.pod.Spec.Containers[0].Image; got != d.image {
		t.Errorf("the new pod has image %s, want %s", got, d.image)
	}
}
