package admission

import (
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

const controllerUser = "system:serviceaccount:edgehub-system:edgehub-controller"

// as returns a client of a user who may do everything that admission lets pass.
func as(t *testing.T, name string) *kubernetes.Clientset {
	t.Helper()
	config := rest.CopyConfig(env.cluster.AdminConfig())
	config.Impersonate.UserName = name
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = env.admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: name}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// patchPod tries a patch.
func patchPod(t *testing.T, client kubernetes.Interface, name, text string) error {
	t.Helper()
	_, err := client.CoreV1().Pods(namespace).Patch(t.Context(), name, types.StrategicMergePatchType, []byte(text), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// The policy narrows the controller's right to patch pods to what it is there for, and nobody else's.
func TestWhatTheControllerMayChangeOfAPod(t *testing.T) {
	const policy = "edgehub-controller-pods"
	controller, other := as(t, controllerUser), as(t, "someone")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "kept", Labels: map[string]string{"app": "a"}, Annotations: map[string]string{"note": "mine"}}}
	pod.Spec = corev1.PodSpec{NodeName: "nowhere", AutomountServiceAccountToken: new(false),
		Containers: []corev1.Container{{Name: "app", Image: "app:1"}}, InitContainers: []corev1.Container{{Name: "first", Image: "first:1"}}}
	pod, err := env.admin.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	unbound := pod.DeepCopy()
	unbound.ObjectMeta, unbound.Spec.NodeName = metav1.ObjectMeta{Name: "unbound"}, ""
	if _, err = env.admin.CoreV1().Pods(namespace).Create(t.Context(), unbound, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch := func(client kubernetes.Interface, name, text string) error { return patchPod(t, client, name, text) }
	const image = `{"spec":{"containers":[{"name":"app","image":"other"}]}}`
	poll.Eventually(t, "the policy is in force and the accounts have rights", func() bool {
		return refusalBy(policy, patch(controller, "kept", image)) != "" && patch(other, "kept", image) == nil
	})
	seconds := func(key, value string) string {
		var out []string
		for _, k := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, key} {
			if k != "" {
				out = append(out, `{"key":"`+k+`","operator":"Exists","effect":"NoExecute"`+value+`}`)
			}
		}
		return `{"metadata":{"annotations":{"apps.openyurt.io/original-not-ready-toleration-duration":"300"}},"spec":{"tolerations":[` + strings.Join(out, ",") + `]}}`
	}
	for name, text := range map[string]string{"for ever": seconds("", ""), "for an hour": seconds("", `,"tolerationSeconds":3600`), "not at all": seconds("", `,"tolerationSeconds":0`)} {
		if err := patch(controller, "kept", text); err != nil {
			t.Errorf("it may not have a pod tolerate the taints %s: %v", name, err)
		}
	}
	for name, tt := range map[string]struct{ pod, text string }{
		"an init image":             {"kept", `{"spec":{"initContainers":[{"name":"first","image":"other"}]}}`},
		"a deadline":                {"kept", `{"spec":{"activeDeadlineSeconds":1}}`},
		"another toleration":        {"kept", seconds("gpu", "")},
		"a second one of a taint":   {"kept", seconds(corev1.TaintNodeUnreachable, `,"tolerationSeconds":1`)},
		"a label":                   {"kept", `{"metadata":{"labels":{"app":"b"}}}`},
		"a finalizer":               {"kept", `{"metadata":{"finalizers":["example.com/never"]}}`},
		"an owner":                  {"kept", `{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"x","uid":"u"}]}}`},
		"an annotation":             {"kept", `{"metadata":{"annotations":{"note":"yours"}}}`},
		"an annotation that goes":   {"kept", `{"metadata":{"annotations":{"note":null}}}`},
		"an annotation that is new": {"kept", `{"metadata":{"annotations":{"new":""}}}`},
		"a pod that no node has":    {"unbound", seconds("", "")},
	} {
		if err := patch(controller, tt.pod, tt.text); refusalBy(policy, err) == "" {
			t.Errorf("%s: got %v, want a refusal by the policy", name, err)
		}
	}
}

// A rollback changes the images of containers, the hash of the revision and nothing else, and only as the annotation
// asks that the node's hub writes. As a dry run it may try others, so these are none.
func TestWhichRollbacksTheControllerMayCarryOut(t *testing.T) {
	const policy = "edgehub-controller-pods"
	controller := as(t, controllerUser)
	patch := func(name, text string) error {
		_, err := controller.CoreV1().Pods(namespace).Patch(t.Context(), name, types.StrategicMergePatchType, []byte(text), metav1.PatchOptions{})
		return err
	}
	create := func(name, owner, annotation string) {
		t.Helper()
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: name, Finalizers: []string{"example.com/kept"}, // the garbage collector finds no such owner
			Annotations: map[string]string{"note": "mine", api.RollbackAnnotation: annotation},
			Labels:      map[string]string{"app": "a", appsv1.ControllerRevisionHashLabelKey: "new", "pod-template-generation": "2"},
		}}
		if owner != "" {
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: owner, Name: "x", UID: "u", Controller: new(true)}}
		}
		pod.Spec = corev1.PodSpec{NodeName: "nowhere", AutomountServiceAccountToken: new(false),
			Containers:     []corev1.Container{{Name: "app", Image: "app:2"}},
			InitContainers: []corev1.Container{{Name: "first", Image: "first:1"}, {Name: "log", Image: "log:2", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}}
		if _, err := env.admin.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	wish := api.Rollback{Revision: "old", From: "new", Requested: metav1.Now()}.Encode()
	create("first", "DaemonSet", wish)
	create("daemon", "DaemonSet", wish)
	create("labelled", "DaemonSet", wish)
	create("ordinal", "StatefulSet", wish)
	create("sidecar", "DaemonSet", wish)
	create("replica", "ReplicaSet", wish)
	create("orphan", "", wish)
	create("other-wish", "DaemonSet", api.Rollback{Revision: "older", From: "old"}.Encode())
	create("no-wish", "DaemonSet", "")
	const image, hash = `"spec":{"containers":[{"name":"app","image":"app:1"}]}`, `"controller-revision-hash":"old"`
	labels := func(all string) string { return `"metadata":{"labels":{` + all + `}}` }
	rollback := "{" + labels(hash+`,"pod-template-generation":null`) + "," + image + "}"
	poll.Eventually(t, "the policy is in force and the account has rights", func() bool {
		return patch("first", rollback) == nil && refusalBy(policy, patch("no-wish", rollback)) != ""
	})
	const logImage = `"initContainers":[{"name":"log","image":"log:1"}],`
	for name, tt := range map[string]struct{ pod, text string }{
		"of a StatefulSet":    {"ordinal", rollback},
		"of a native sidecar": {"sidecar", strings.Replace(rollback, `"spec":{`, `"spec":{`+logImage, 1)},
		"of a pod with the images already, and no older label": {"labelled", "{" + labels(hash) + "}"},
	} {
		if err := patch(tt.pod, tt.text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, tt := range map[string]struct{ pod, text string }{
		"of a ReplicaSet":           {"replica", rollback},
		"of nobody":                 {"orphan", rollback},
		"to another revision":       {"other-wish", rollback},
		"that nobody asked for":     {"no-wish", rollback},
		"the image alone":           {"daemon", "{" + image + "}"},
		"no hash":                   {"daemon", "{" + labels(`"controller-revision-hash":null`) + "," + image + "}"},
		"an init container as well": {"daemon", strings.Replace(rollback, `"spec":{`, `"spec":{"initContainers":[{"name":"first","image":"first:2"}],`, 1)},
		"a native sidecar alone":    {"daemon", `{"spec":{` + strings.TrimSuffix(logImage, ",") + `}}`},
		"a toleration as well":      {"daemon", strings.Replace(rollback, `"spec":{`, `"spec":{"tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":1},{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],`, 1)},
		"another label as well":     {"daemon", strings.Replace(rollback, hash, hash+`,"app":"b"`, 1)},
		"another label goes":        {"daemon", strings.Replace(rollback, hash, hash+`,"app":null`, 1)},
		"the older label alone":     {"daemon", "{" + labels(`"pod-template-generation":null`) + "}"},
		"the older label changes":   {"daemon", "{" + labels(hash+`,"pod-template-generation":"1"`) + "," + image + "}"},
		"an annotation as well":     {"daemon", strings.Replace(rollback, `"metadata":{`, `"metadata":{"annotations":{"apps.openyurt.io/original-not-ready-toleration-duration":"300"},`, 1)},
		"its own wish":              {"no-wish", strings.Replace(rollback, `"metadata":{`, `"metadata":{"annotations":{"apps.openyurt.io/rollback":"{\"revision\":\"old\",}"},`, 1)},
	} {
		if err := patch(tt.pod, tt.text); refusalBy(policy, err) == "" {
			t.Errorf("%s: got %v, want a refusal by the policy", name, err)
		}
	}
}

// Through a status, the controller changes conditions and annotations of its own, and nothing with which it could go past the
// policies: labels, which make a pod an endpoint; an owner's wish; a strategy; a finalizer; a Node's addresses.
func TestWhatTheControllerMayChangeOfAStatus(t *testing.T) {
	const policy = "edgehub-controller-status"
	controller, other := as(t, controllerUser), as(t, "someone")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "status", Labels: map[string]string{"app": "a"}, Annotations: map[string]string{"note": "mine", api.RollbackAnnotation: "a wish"}}}
	pod.Spec = corev1.PodSpec{NodeName: "nowhere", AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "app", Image: "app:1"}}}
	ds := daemonSet(onDelete, map[string]string{strategyKey: "OTA"})
	ds.Name = "status"
	sts := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "status"}, Spec: appsv1.StatefulSetSpec{Selector: ds.Spec.Selector, Template: ds.Spec.Template}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "status", Annotations: map[string]string{"note": "mine", "apps.openyurt.io/autonomy-released": "now"}}}
	_, errPod := env.admin.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	_, errDS := env.admin.AppsV1().DaemonSets(namespace).Create(t.Context(), ds, metav1.CreateOptions{})
	_, errSts := env.admin.AppsV1().StatefulSets(namespace).Create(t.Context(), sts, metav1.CreateOptions{})
	_, errNode := env.admin.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	if err := errors.Join(errPod, errDS, errSts, errNode); err != nil {
		t.Fatal(err)
	}
	condition := func(t string) string {
		return `{"status":{"conditions":[{"type":"` + t + `","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
	}
	kubelets := func(kind string) string {
		return map[string]string{
			"pods":  `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"False"},{"type":"ContainersReady","status":"False"}]}}`,
			"nodes": `{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.1"}],"images":[{"names":["app:1"],"sizeBytes":1}],"conditions":[{"type":"Ready","status":"True"}]}}`,
		}[kind]
	}
	annotation := func(key string) string { return `{"metadata":{"annotations":{"` + key + `":"x"}}}` }
	gone := func(key string) string { return `{"metadata":{"annotations":{"` + key + `":null}}}` }
	patch := func(client kubernetes.Interface, kind, text string) error {
		dry := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
		var err error
		switch kind {
		case "pods":
			_, err = client.CoreV1().Pods(namespace).Patch(t.Context(), "status", types.StrategicMergePatchType, []byte(text), dry, "status")
		case "nodes":
			_, err = client.CoreV1().Nodes().Patch(t.Context(), "status", types.StrategicMergePatchType, []byte(text), dry, "status")
		case "daemonsets":
			_, err = client.AppsV1().DaemonSets(namespace).Patch(t.Context(), "status", types.StrategicMergePatchType, []byte(text), dry, "status")
		case "statefulsets":
			_, err = client.AppsV1().StatefulSets(namespace).Patch(t.Context(), "status", types.StrategicMergePatchType, []byte(text), dry, "status")
		}
		return err
	}
	for kind, text := range map[string]string{"pods": kubelets("pods"), "nodes": kubelets("nodes")} { // as a kubelet has left them
		var err error
		if kind == "pods" {
			_, err = env.admin.CoreV1().Pods(namespace).Patch(t.Context(), "status", types.StrategicMergePatchType, []byte(text), metav1.PatchOptions{}, "status")
		} else {
			_, err = env.admin.CoreV1().Nodes().Patch(t.Context(), "status", types.StrategicMergePatchType, []byte(text), metav1.PatchOptions{}, "status")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	label := `{"metadata":{"labels":{"app":"bank"}}}`
	poll.Eventually(t, "the policy is in force and the accounts have rights", func() bool {
		return refusalBy(policy, patch(controller, "pods", label)) != "" && patch(other, "pods", label) == nil
	})
	for kind, texts := range map[string][]string{
		"pods":         {condition("PodNeedUpgrade"), condition("PodRolledBack"), condition("PodOfflineUpgradeReconciled"), annotation(api.TargetAnnotation), annotation("apps.openyurt.io/upgrade-policy")},
		"nodes":        {condition("apps.openyurt.io/Autonomy"), annotation(api.MissingAnnotation), gone("apps.openyurt.io/autonomy-released")},
		"daemonsets":   {condition("RolloutComplete"), condition("RolloutProgressing"), condition("RolloutHalted"), condition("UpdateStrategyInvalid"), annotation("apps.openyurt.io/retried-at"), annotation(api.ReportAnnotation)},
		"statefulsets": {annotation("apps.openyurt.io/retried-at"), annotation(api.ReportAnnotation)},
	} {
		for _, text := range texts {
			if err := patch(controller, kind, text); err != nil {
				t.Errorf("%s %s: %v", kind, text, err)
			}
		}
	}
	for kind, texts := range map[string][]string{
		"pods": {
			label, `{"metadata":{"finalizers":["example.com/never"]}}`, annotation(api.RollbackAnnotation), gone("note"), annotation("apps.openyurt.io/upgrade-hold"), condition("PodUpgradedOffline"),
			condition("Ready"), condition("PodScheduled"), `{"status":{"conditions":[{"type":"Ready","$patch":"delete"}]}}`,
			`{"status":{"podIP":"10.0.0.9","podIPs":[{"ip":"10.0.0.9"}]}}`, `{"status":{"phase":"Failed"}}`, `{"status":{"phase":null}}`,
		},
		"nodes": {
			label, `{"metadata":{"annotations":{"node.openyurt.io/autonomy-duration":"1h"}}}`, annotation("apps.openyurt.io/autonomy-released"), gone("note"), condition("Ready"), condition("MemoryPressure"),
			`{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.9"}]}}`, `{"status":{"capacity":{"cpu":"99"}}}`, `{"status":{"images":null}}`,
		},
		"daemonsets":   {label, annotation(strategyKey), gone(strategyKey), annotation("apps.openyurt.io/owner-rollback"), condition("Available"), `{"status":{"numberReady":9}}`},
		"statefulsets": {label, annotation(strategyKey), condition("RolloutComplete"), `{"status":{"observedGeneration":9}}`},
	} {
		for _, text := range texts {
			if err := patch(controller, kind, text); refusalBy(policy, err) == "" || !apierrors.IsInvalid(err) {
				t.Errorf("%s %s: got %v, want 422 by the policy", kind, text, err)
			}
		}
	}
}
