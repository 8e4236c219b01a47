package rollout_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/poll"
	"github.com/edgehub-io/edgehub/test/internal/rolloutenv"
)

// apply has kubectl apply what is in manifest, until the end of the test.
func apply(t *testing.T, manifest string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl(t, "apply", "-f", file)
	t.Cleanup(func() { _, _ = s.Cluster.Kubectl(context.Background(), "delete", "--ignore-not-found", "-f", file) })
}

func kubectl(t *testing.T, args ...string) {
	t.Helper()
	if out, err := s.Cluster.Kubectl(t.Context(), args...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func applyAdmission(t *testing.T) {
	t.Helper()
	if err := s.ApplyAdmission(t.Context(), "../../.."); err != nil {
		t.Fatal(err)
	}
}

// refuses reports whether admission refuses another pod of a DaemonSet, with the next image.
func refuses(t *testing.T, d *rolloutenv.DaemonSet) bool {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: "another"}, Spec: d.Get().Spec.Template.Spec}
	pod.Spec.Containers[0].Image = "app:2"
	_, err := s.Admin.CoreV1().Pods(d.Namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err != nil
}

// quotasCount reports whether all quotas of a namespace have been counted: admission takes no notice of others.
func quotasCount(t *testing.T, namespace string) bool {
	t.Helper()
	list, err := s.Admin.CoreV1().ResourceQuotas(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return !slices.ContainsFunc(list.Items, func(q corev1.ResourceQuota) bool { return len(q.Status.Used) < len(q.Spec.Hard) })
}

// blockedOf is why the owner of a pod's node cannot upgrade it.
func blockedOf(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	target, ok, err := api.TargetOf(pod)
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		return "not marked yet"
	}
	return target.Blocked
}

// lacks is why the controller says that a node lacks the pod of a DaemonSet; "" if it does not.
func lacks(t *testing.T, node string, d *rolloutenv.DaemonSet) string {
	t.Helper()
	n, err := s.Admin.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := api.MissingOn(n)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list {
		if m.Namespace == d.Namespace {
			return m.Why
		}
	}
	return ""
}

func uids(pods map[string]*corev1.Pod) []types.UID {
	var out []types.UID
	for _, node := range slices.Sorted(maps.Keys(pods)) {
		out = append(out, pods[node].UID)
	}
	return out
}

// What admission would refuse costs no node its pod, whoever refuses it: with AdvancedRollingUpdate the condition
// has the apiserver's words, and with OTA the pods. When the cause is mended, the rollout goes on by itself.
func TestNoPodIsDeletedWhoseSuccessorIsRefused(t *testing.T) {
	applyAdmission(t)
	s.StartController(t, controller.Options{Timing: rollout.Timing{NodeSettle: settle}, Namespace: "edgehub-system"}, nil)
	for name, tt := range map[string]struct {
		before        func(*appsv1.DaemonSet)
		manifest      string // NAMESPACE is the DaemonSet's
		label         string // of the namespace
		patch         string // of the pod template's spec
		words         string
		mend, mending string // arguments of kubectl, or a manifest
	}{
		"Pod Security": {
			before: func(ds *appsv1.DaemonSet) {
				ds.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "h", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp"}}}}
			},
			label: "pod-security.kubernetes.io/enforce=baseline", words: `violates PodSecurity "baseline:latest": hostPath volumes (volume "h")`,
			mend: "label namespace NAMESPACE pod-security.kubernetes.io/enforce-",
		},
		"a PriorityClass": {
			patch: `{"priorityClassName":"NAMESPACE"}`, words: "no PriorityClass with name",
			mending: "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: NAMESPACE}\nvalue: 7\n",
		},
		"a ServiceAccount": {
			patch: `{"serviceAccountName":"robot"}`, words: `error looking up service account NAMESPACE/robot: serviceaccount "robot" not found`,
			mend: "-n NAMESPACE create serviceaccount robot",
		},
		"a quota": {
			before: func(ds *appsv1.DaemonSet) {
				ds.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
			},
			manifest: "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q, namespace: NAMESPACE}\nspec: {hard: {requests.cpu: '1', pods: '10'}}\n",
			patch:    `{"containers":[{"name":"app","resources":{"requests":{"cpu":"101m"}}}]}`, words: "exceeded quota: q, requested: pods=1,requests.cpu=101m, used: pods=10,requests.cpu=1, limited: pods=10,requests.cpu=1",
			mend: "-n NAMESPACE delete resourcequota q",
		},
		"another quota than the one that is named": { // one of the four is, at random
			before: func(ds *appsv1.DaemonSet) {
				ds.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
			},
			manifest: `{apiVersion: v1, kind: ResourceQuota, metadata: {name: q, namespace: NAMESPACE}, spec: {hard: {requests.cpu: '1'}}}
---
{apiVersion: v1, kind: ResourceQuota, metadata: {name: p1, namespace: NAMESPACE}, spec: {hard: {pods: '10'}}}
---
{apiVersion: v1, kind: ResourceQuota, metadata: {name: p2, namespace: NAMESPACE}, spec: {hard: {pods: '10'}}}
---
{apiVersion: v1, kind: ResourceQuota, metadata: {name: p3, namespace: NAMESPACE}, spec: {hard: {count/pods: '10'}}}
`,
			patch: `{"containers":[{"name":"app","resources":{"requests":{"cpu":"101m"}}}]}`, words: "exceeded quota: q, requested: requests.cpu=101m, used",
			mend: "-n NAMESPACE delete resourcequota --all",
		},
		"a policy": {
			manifest: `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAMESPACE}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: "object.spec.containers[0].image != 'app:2'", message: not this one}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAMESPACE}
spec:
  policyName: NAMESPACE
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}}
`,
			words: "denied request: not this one", mend: "delete validatingadmissionpolicybinding NAMESPACE",
		},
	} {
		for _, strategy := range []string{"AdvancedRollingUpdate", "OTA"} {
			t.Run(name+" with "+strategy, func(t *testing.T) {
				t.Parallel()
				change := tt.before
				if change == nil {
					change = func(*appsv1.DaemonSet) {}
				}
				d := s.NewDaemonSet(t, map[string]string{"apps.openyurt.io/update-strategy": strategy, api.MaxUnavailableAnnotation: "100%"}, change)
				here := func(text string) string { return strings.ReplaceAll(text, "NAMESPACE", d.Namespace) }
				if tt.manifest != "" {
					apply(t, here(tt.manifest))
				}
				if tt.label != "" {
					kubectl(t, "label", "namespace", d.Namespace, tt.label)
				}
				if tt.manifest+tt.label != "" {
					poll.Eventually(t, "admission refuses a pod", func() bool { return refuses(t, d) && quotasCount(t, d.Namespace) })
				}
				before := uids(d.Pods())
				if tt.patch != "" {
					d.Patch(`{"spec":{"template":{"spec":%s}}}`, here(tt.patch))
				} else {
					d.SetImage("app:2")
				}
				if strategy == "OTA" {
					poll.Eventually(t, "the pods have the words", func() bool {
						return strings.Contains(blockedOf(t, d.Pods()["n1"]), here(tt.words))
					})
				} else {
					d.AwaitCondition(api.ProgressingCondition, corev1.ConditionFalse, rollout.ReasonSuccessorRefused, here(tt.words))
				}
				rest(3 * time.Second)
				if after := uids(d.Pods()); !slices.Equal(before, after) {
					t.Errorf("pods before %v, and after %v", before, after)
				}
				if tt.mending != "" {
					apply(t, here(tt.mending))
				} else {
					kubectl(t, strings.Fields(here(tt.mend))...)
				}
				if strategy == "OTA" {
					poll.Eventually(t, "the upgrade is offered", func() bool { return blockedOf(t, d.Pods()["n1"]) == "" })
				} else {
					d.AwaitCondition(api.CompleteCondition, corev1.ConditionTrue, rollout.ReasonComplete)
				}
			})
		}
	}
}

// One node's pod is refused; another's, which goes later, comes back at once all the same, though the DaemonSet
// controller waits for minutes by then. The node knows what it lacks, and has it seconds after the cause is mended.
func TestWhatIsMissingComesBack(t *testing.T) {
	applyAdmission(t)
	s.StartController(t, controller.Options{Timing: rollout.Timing{NodeSettle: settle}, Namespace: "edgehub-system"}, nil)
	for _, strategy := range []string{"AdvancedRollingUpdate", "OTA"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			d := s.NewDaemonSet(t, map[string]string{"apps.openyurt.io/update-strategy": strategy})
			apply(t, strings.ReplaceAll(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAMESPACE}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations:
  - message: not on n2
    expression: "!object.spec.?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution.?nodeSelectorTerms.orValue([]).exists(t, t.?matchFields.orValue([]).exists(f, 'n2' in f.values))"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAMESPACE}
spec:
  policyName: NAMESPACE
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}}
`, "NAMESPACE", d.Namespace))
			poll.Eventually(t, "admission refuses a pod on n2", func() bool {
				pod := d.Pods()["n2"].DeepCopy()
				pod.ObjectMeta = metav1.ObjectMeta{Namespace: d.Namespace, Name: "another"}
				_, err := s.Admin.CoreV1().Pods(d.Namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				return err != nil && strings.Contains(err.Error(), "not on n2")
			})
			end := func(node string) {
				if err := s.Admin.CoreV1().Pods(d.Namespace).Delete(t.Context(), d.Pods()[node].Name, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			back := func(node, since string) {
				begin := time.Now()
				poll.Eventually(t, "there is a pod on "+node, func() bool { return d.Pods()[node] != nil })
				t.Logf("%s has its pod %v after %s", node, time.Since(begin).Round(100*time.Millisecond), since)
			}
			end("n2")
			poll.Eventually(t, "n2 is told what it lacks", func() bool { return strings.Contains(lacks(t, "n2", d), "denied request: not on n2") })
			gone := d.Pods()["n1"].UID
			end("n1")
			poll.Eventually(t, "the pod of n1 is gone", func() bool { pod := d.Pods()["n1"]; return pod == nil || pod.UID != gone })
			back("n1", "the one before was gone")
			if why := lacks(t, "n1", d); why != "" {
				t.Errorf("n1 lacks a pod: %s", why)
			}
			kubectl(t, "delete", "validatingadmissionpolicybinding", d.Namespace)
			back("n2", "the policy was removed")
			poll.Eventually(t, "n2 lacks nothing", func() bool { return lacks(t, "n2", d) == "" })
		})
	}
}
