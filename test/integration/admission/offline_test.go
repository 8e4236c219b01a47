package admission

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// podOf makes a pod of a DaemonSet that node "nowhere" runs.
func podOf(t *testing.T, name string, annotations map[string]string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, Finalizers: []string{"example.com/kept"}, // the garbage collector finds no such owner
		Annotations:     annotations,
		Labels:          map[string]string{"app": "a", appsv1.ControllerRevisionHashLabelKey: "old", "pod-template-generation": "1"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "x", UID: "u", Controller: new(true)}},
	}}
	pod.Spec = corev1.PodSpec{NodeName: "nowhere", AutomountServiceAccountToken: new(false),
		Containers:     []corev1.Container{{Name: "app", Image: "app:1"}, {Name: "other", Image: "other:1"}},
		InitContainers: []corev1.Container{{Name: "log", Image: "log:1", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}}
	if _, err := env.admin.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// The controller gives a pod the images of the node's report, and no others. Of what would become of a pod it asks before.
func TestWhichOfflineUpgradesTheControllerMayFollow(t *testing.T) {
	const policy = "edgehub-controller-pods"
	controller := as(t, controllerUser)
	report := api.OfflineUpgrade{Revision: "new", From: "old", Images: []api.TargetImage{{Name: "app", Image: "app:2"}}, Since: metav1.NewTime(time.Unix(0, 0))}.Encode()
	podOf(t, "follows", map[string]string{api.UpgradedOfflineAnnotation: report})
	podOf(t, "silent", nil)
	patch := func(name, text string, dryRun bool) error {
		o := metav1.PatchOptions{}
		if dryRun {
			o.DryRun = []string{metav1.DryRunAll}
		}
		_, err := controller.CoreV1().Pods(namespace).Patch(t.Context(), name, types.StrategicMergePatchType, []byte(text), o)
		return err
	}
	const follow = `{"metadata":{"labels":{"controller-revision-hash":"new","pod-template-generation":null}},"spec":{"containers":[{"name":"app","image":"app:2"}]}}`
	poll.Eventually(t, "the policy is in force and the account has rights", func() bool {
		return patch("silent", follow, true) == nil && refusalBy(policy, patch("silent", follow, false)) != ""
	})
	replace := func(before, after string) string {
		if !strings.Contains(follow, before) {
			t.Fatalf("%q is not in the patch", before)
		}
		return strings.Replace(follow, before, after, 1)
	}
	for name, text := range map[string]string{
		"another image":         replace("app:2", "app:3"),
		"another revision":      replace(`"new"`, `"newer"`),
		"another container":     replace(`"app"`, `"other"`),
		"one more container":    replace(`"app:2"}`, `"app:2"},{"name":"other","image":"app:2"}`),
		"a sidecar":             replace(`"spec":{`, `"spec":{"initContainers":[{"name":"log","image":"app:2"}],`),
		"the image alone":       `{"spec":{"containers":[{"name":"app","image":"app:2"}]}}`,
		"another label":         replace(`"labels":{`, `"labels":{"app":"b",`),
		"an annotation":         replace(`"metadata":{`, `"metadata":{"annotations":{"apps.openyurt.io/original-not-ready-toleration-duration":"300"},`),
		"the report as well":    replace(`"metadata":{`, `"metadata":{"annotations":{"apps.openyurt.io/upgraded-offline":null},`),
		"a deadline":            replace(`"spec":{`, `"spec":{"activeDeadlineSeconds":1,`),
		"a toleration":          replace(`"spec":{`, `"spec":{"tolerations":[{"key":"gpu","operator":"Exists"}],`),
		"a finalizer":           replace(`"metadata":{`, `"metadata":{"$deleteFromPrimitiveList/finalizers":["example.com/kept"],`),
		"what nobody has asked": replace(`"new"`, `""`),
	} {
		if err := patch("follows", text, false); refusalBy(policy, err) == "" {
			t.Errorf("%s: got %v, want a refusal by the policy", name, err)
		}
	}
	for name, text := range map[string]string{
		"an image without a revision": `{"spec":{"containers":[{"name":"app","image":"app:2"}]}}`,
		"a sidecar":                   replace(`"spec":{`, `"spec":{"initContainers":[{"name":"log","image":"app:2"}],`),
		"another label":               replace(`"labels":{`, `"labels":{"app":"b",`),
	} {
		if err := patch("silent", text, true); refusalBy(policy, err) == "" {
			t.Errorf("as a dry run, %s: got %v, want a refusal by the policy", name, err)
		}
	}
	if err := patch("follows", follow, false); err != nil {
		t.Errorf("what the node reports: %v", err)
	}
}
