package admission

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

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

// A forged mark has a node run other images, and a forged report has the controller write them into a pod.
func TestWhoMaySayThatAPodIsUpgradedOffline(t *testing.T) {
	const policy = "edgehub-offline-upgrades"
	clients := map[string]*kubernetes.Clientset{
		"the controller": as(t, controllerUser), "its node": as(t, "system:node:nowhere"), "another node": as(t, "system:node:elsewhere"),
		"a node of no name": as(t, "system:node:"), "someone": as(t, "someone"),
	}
	podOf(t, "marked", map[string]string{"note": "mine", api.TargetAnnotation: "before", api.UpgradedOfflineAnnotation: "before"})
	patch := func(client kubernetes.Interface, text string, subresources ...string) error {
		_, err := client.CoreV1().Pods(namespace).Patch(t.Context(), "marked", types.StrategicMergePatchType, []byte(text), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, subresources...)
		return err
	}
	set := func(key, value string) string {
		text, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{key: value}}})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	const both = `{"metadata":{"annotations":{"apps.openyurt.io/upgrade-target":"x","apps.openyurt.io/upgraded-offline":"x"}}}`
	poll.Eventually(t, "the policy is in force and the accounts have rights", func() bool {
		for _, name := range []string{"its node", "a node of no name", "someone"} {
			if refusalBy(policy, patch(clients[name], both, "status")) == "" {
				return false
			}
		}
		return patch(clients["the controller"], set(api.TargetAnnotation, "x"), "status") == nil
	})
	writers := map[string]string{api.TargetAnnotation: "the controller", api.UpgradedOfflineAnnotation: "its node"}
	for name, client := range clients {
		for key, writer := range writers {
			for _, value := range []string{"after", "", `{"in\u0050lace":[]}`} {
				err := patch(client, set(key, value), "status")
				if (err == nil) != (name == writer) {
					t.Errorf("%s sets %s to %q with a status: %v", name, key, value, err)
				}
				if err := patch(client, set(key, value)); err == nil {
					t.Errorf("%s sets %s to %q with a pod", name, key, value)
				}
			}
		}
	}
	// NodeRestriction, or the policies for the controller, refuse the others before.
	for _, name := range []string{"a node of no name", "someone"} {
		for key := range writers {
			for _, err := range []error{patch(clients[name], set(key, "after"), "status"), patch(clients[name], set(key, "after"))} {
				if refusalBy(policy, err) == "" {
					t.Errorf("%s sets %s: got %v, want a refusal by the policy", name, key, err)
				}
			}
		}
	}
	for _, name := range []string{"the controller", "its node", "someone"} { // the rest may be changed, and a mark taken away
		for _, text := range []string{
			`{"metadata":{"annotations":{"apps.openyurt.io/upgrade-target":null}},"status":{"conditions":[{"type":"PodNeedUpgrade","status":"False"}]}}`,
			`{"status":{"conditions":[{"type":"PodNeedUpgrade","status":"True"}]}}`, set(api.TargetAnnotation, "before"),
		} {
			if err := patch(clients[name], text, "status"); err != nil {
				t.Errorf("%s, %s: %v", name, text, err)
			}
		}
	}
	if err := patch(clients["someone"], `{"metadata":{"annotations":{"note":"yours","apps.openyurt.io/upgraded-offline":null}}}`); err != nil {
		t.Errorf("an admin takes a report away: %v", err)
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
