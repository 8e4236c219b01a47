package admission

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

const offlinePolicy = "edgehub-offline-upgrades"

// podOf makes a pod of a DaemonSet that node "nowhere" runs. Who may write an annotation that the policy guards does so.
func podOf(t *testing.T, name string, annotations map[string]string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, Finalizers: []string{"example.com/kept"}, // the garbage collector finds no such owner
		Annotations:     maps.Clone(annotations),
		Labels:          map[string]string{"app": "a", appsv1.ControllerRevisionHashLabelKey: "old", "pod-template-generation": "1"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "x", UID: "u", Controller: new(true)}},
	}}
	pod.Spec = corev1.PodSpec{NodeName: "nowhere", AutomountServiceAccountToken: new(false),
		Containers:     []corev1.Container{{Name: "app", Image: "app:1"}, {Name: "other", Image: "other:1"}},
		InitContainers: []corev1.Container{{Name: "log", Image: "log:1", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}}
	for key := range writers {
		delete(pod.Annotations, key)
	}
	if _, err := env.admin.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for key, writer := range writers {
		value, ok := annotations[key]
		if !ok {
			continue
		}
		client := as(t, users[writer])
		poll.Eventually(t, writer+" has rights", func() bool {
			_, err := client.CoreV1().Pods(namespace).Patch(t.Context(), name, types.StrategicMergePatchType, []byte(annotate(t, key, value)), metav1.PatchOptions{}, "status")
			return err == nil
		})
	}
}

var (
	users = map[string]string{
		"the controller": controllerUser, "its node": "system:node:nowhere", "another node": "system:node:elsewhere",
		"a node of no name": "system:node:", "someone": "someone",
	}
	// writers are the users who may write what the policy guards, by key.
	writers = map[string]string{api.TargetAnnotation: "the controller", api.UpgradedOfflineAnnotation: "its node"}
)

// all returns a client of each user.
func all(t *testing.T) map[string]*kubernetes.Clientset {
	t.Helper()
	clients := map[string]*kubernetes.Clientset{}
	for name, user := range users {
		clients[name] = as(t, user)
	}
	return clients
}

// annotate is a patch that sets an annotation.
func annotate(t *testing.T, key, value string) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{key: value}}})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A forged mark has a node run other images, and a forged report has the controller write them into a pod.
func TestWhoMaySayThatAPodIsUpgradedOffline(t *testing.T) {
	const policy = offlinePolicy
	clients := all(t)
	podOf(t, "marked", map[string]string{"note": "mine", api.TargetAnnotation: "before", api.UpgradedOfflineAnnotation: "before"})
	patch := func(client kubernetes.Interface, text string, subresources ...string) error {
		_, err := client.CoreV1().Pods(namespace).Patch(t.Context(), "marked", types.StrategicMergePatchType, []byte(text), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, subresources...)
		return err
	}
	set := func(key, value string) string { return annotate(t, key, value) }
	const both = `{"metadata":{"annotations":{"apps.openyurt.io/upgrade-target":"x","apps.openyurt.io/upgraded-offline":"x"}}}`
	poll.Eventually(t, "the policy is in force and the accounts have rights", func() bool {
		for _, name := range []string{"its node", "a node of no name", "someone"} {
			if refusalBy(policy, patch(clients[name], both, "status")) == "" {
				return false
			}
		}
		return patch(clients["the controller"], set(api.TargetAnnotation, "x"), "status") == nil
	})
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

// A pod gets annotations when it is created, by whomever: a user, or the controller of a workload from a template that a user has
// written. A Binding adds its own. The mirror of a static pod is created by the node that runs it.
func TestNoPodIsCreatedWithWhatIsSaidOfOfflineUpgrades(t *testing.T) {
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	spec := corev1.PodSpec{SchedulerName: "none", AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "app", Image: "app:1"}}}
	if _, err := env.admin.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "to-bind"}, Spec: spec}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	spec.NodeName = "nowhere"
	ways := map[string]func(c *kubernetes.Clientset, annotations map[string]string) error{
		"a pod": func(c *kubernetes.Clientset, annotations map[string]string) error {
			_, err := c.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "made-", Annotations: annotations}, Spec: spec}, dry)
			return err
		},
		"a pod, by an apply": func(c *kubernetes.Clientset, annotations map[string]string) error {
			text, err := json.Marshal(corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "applied", Annotations: annotations}, Spec: spec})
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.CoreV1().Pods(namespace).Patch(t.Context(), "applied", types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: "test", DryRun: dry.DryRun})
			return err
		},
		"a Binding of a pod": func(c *kubernetes.Clientset, annotations map[string]string) error {
			return c.CoreV1().Pods(namespace).Bind(t.Context(), bindingOf(annotations), dry)
		},
		"a Binding": func(c *kubernetes.Clientset, annotations map[string]string) error {
			return c.CoreV1().RESTClient().Post().Namespace(namespace).Resource("bindings").VersionedParams(&dry, scheme.ParameterCodec).Body(bindingOf(annotations)).Do(t.Context()).Error()
		},
	}
	clients := all(t)
	refused := func(client *kubernetes.Clientset, way, key string) bool {
		words := refusalBy(offlinePolicy, ways[way](client, map[string]string{key: ""}))
		return strings.Contains(words, "alone sets") // and is no expression that fails, which would let it pass
	}
	for _, name := range []string{"the controller", "a node of no name", "someone"} { // NodeRestriction refuses the others before
		poll.Eventually(t, "the policy is in force and the account has rights", func() bool { return refused(clients[name], "a Binding", api.TargetAnnotation) })
		for way, create := range ways {
			for key := range writers {
				if !refused(clients[name], way, key) {
					t.Errorf("%s creates %s with %s", name, way, key)
				}
			}
			if err := create(clients[name], map[string]string{"note": "mine"}); err != nil {
				t.Errorf("%s creates %s with neither: %v", name, way, err)
			}
		}
	}
	node, err := env.admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "mirrors"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kubelet := as(t, "system:node:mirrors")
	mirror := func(key string) error {
		pod := &corev1.Pod{Spec: spec, ObjectMeta: metav1.ObjectMeta{
			Name: "static-mirrors", Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x", key: ""},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: new(true)}},
		}}
		pod.Spec.NodeName = node.Name
		_, err := kubelet.CoreV1().Pods(namespace).Create(t.Context(), pod, dry)
		return err
	}
	poll.Eventually(t, "its node has rights", func() bool { return mirror("note") == nil })
	if err := mirror(api.TargetAnnotation); refusalBy(offlinePolicy, err) == "" {
		t.Errorf("its node marks the pod that mirrors a static one: %v", err)
	}
	if err := mirror(api.UpgradedOfflineAnnotation); err != nil {
		t.Errorf("its node says something of the pod that mirrors a static one: %v", err)
	}
}

func bindingOf(annotations map[string]string) *corev1.Binding {
	return &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "to-bind", Namespace: namespace, Annotations: annotations}, Target: corev1.ObjectReference{Kind: "Node", Name: "nowhere"}}
}

// The policy looks at none of these.
func TestOtherSubresourcesOfAPodChangeNoAnnotations(t *testing.T) {
	podOf(t, "other-subresources", map[string]string{"note": "mine"})
	for _, subresource := range []string{"ephemeralcontainers", "resize"} {
		pod, err := env.admin.CoreV1().Pods(namespace).Patch(t.Context(), "other-subresources", types.StrategicMergePatchType, []byte(annotate(t, api.UpgradedOfflineAnnotation, "forged")), metav1.PatchOptions{}, subresource)
		if err != nil || !maps.Equal(pod.Annotations, map[string]string{"note": "mine"}) {
			t.Errorf("%s: %v, and it has annotations %v", subresource, err, pod.GetAnnotations())
		}
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
