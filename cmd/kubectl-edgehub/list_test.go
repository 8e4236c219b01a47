package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/cmd/kubectl-edgehub/progress"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/controller/workload"
	"github.com/edgehub-io/edgehub/ota/api"
)

// twoNamespaces has a DaemonSet and a StatefulSet with OTA in different namespaces, each with a pod
// of its newest revision, and workloads that have not opted in.
func twoNamespaces() []runtime.Object {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}
	plain := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "plain"}}
	log := managed("log", "OTA")
	log.Namespace, log.UID, log.Spec.Selector = "shop", "log-uid", selector
	db := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "bank", Name: "db", UID: "db-uid", Annotations: map[string]string{api.StrategyAnnotation: "OTA"},
	}}
	db.Spec.Selector, db.Spec.UpdateStrategy.Type = selector, appsv1.OnDeleteStatefulSetStrategyType
	db.Status.UpdateRevision = "db-1"
	out := []runtime.Object{plain, &log, db}
	for _, w := range []workload.Object{&log, db} {
		say(w, rollout.ReasonComplete, rollout.Group{State: rollout.Updated, Count: 1})
	}
	for _, w := range []struct {
		kind, namespace, name, pod, hash string
		uid                              types.UID
	}{{"DaemonSet", "shop", "log", "log-x", "1", "log-uid"}, {"StatefulSet", "bank", "db", "db-0", "db-1", "db-uid"}} {
		meta := metav1.ObjectMeta{Namespace: w.namespace, Labels: map[string]string{"app": "x", appsv1.ControllerRevisionHashLabelKey: w.hash}}
		meta.OwnerReferences = []metav1.OwnerReference{{Kind: w.kind, Name: w.name, UID: w.uid, Controller: new(true)}}
		pod := &corev1.Pod{ObjectMeta: meta}
		pod.Name, pod.Spec.NodeName = w.pod, "edge01"
		other := pod.DeepCopy() // of somebody else
		other.Name, other.OwnerReferences = "other", nil
		out = append(out, pod, other)
	}
	return out
}

// say has the controller say about what w asks for now.
func say(w workload.Object, reason string, groups ...rollout.Group) {
	r := rollout.NewAwaitReport(w)
	r.Revision, r.Reason, r.Message, r.Groups, r.Counts = "1", reason, "so many nodes updated", groups, map[rollout.State]int{}
	for _, g := range groups {
		r.Counts[g.State] = g.Count
	}
	w.GetAnnotations()[api.ReportAnnotation] = r.Encode()
}

func listAll(t *testing.T, c call, namespace string, objects ...runtime.Object) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	c.out, c.err = &stdout, &stderr
	to := &cluster{client: fake.NewClientset(objects...), namespace: namespace, clock: &serverClock{}}
	code = cli.Finish(&stderr, "error", c.statusOfAll(t.Context(), to))
	return code, stdout.String(), stderr.String()
}

func TestStatusOfAllNamespaces(t *testing.T) {
	code, out, errs := listAll(t, call{all: true}, "shop", twoNamespaces()...)
	want := strings.TrimPrefix(`
NAMESPACE   NAME     STATE      UPDATED   UNAVAILABLE   OWNERS
shop        ds/log   complete   1/1       0             -
bank        sts/db   complete   1/1       0             -
`, "\n")
	if code != cli.Done || out != want || errs != "" {
		t.Errorf("got exit code %d and\n%s%s\nwant\n%s", code, out, errs, want)
	}
}

func TestStatusOfANamespace(t *testing.T) {
	if _, out, _ := listAll(t, call{}, "bank", twoNamespaces()...); strings.Contains(out, "shop") || !strings.Contains(out, "sts/db") {
		t.Errorf("got\n%s\nwant those of the namespace bank", out)
	}
	code, out, errs := listAll(t, call{}, "default", twoNamespaces()...)
	if want := "no DaemonSet or StatefulSet in namespace default has opted into an update strategy of edgehub\n"; code != cli.Done || out != "" || errs != want {
		t.Errorf("got exit code %d, %q and %q; want %q on stderr", code, out, errs, want)
	}
}

// Whoever reads one line of many must see what needs somebody.
func TestStatusOfAllShowsWhatIsWrong(t *testing.T) {
	typo := managed("typo", "Adv")
	typo.Namespace, typo.Spec.Selector = "shop", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "typo"}}
	code, out, _ := listAll(t, call{all: true}, "", append(twoNamespaces(), &typo)...)
	if code != progress.ExitHeldUp || !strings.Contains(out, "\nds/typo in shop: annotation apps.openyurt.io/update-strategy is \"Adv\"") {
		t.Errorf("got exit code %d and\n%s\nwant what is wrong with ds/typo", code, out)
	}
}

// A warning about the controller is printed once, however many workloads wait for it.
func TestStatusOfAllWarnsOnceOfTheController(t *testing.T) {
	objects := twoNamespaces()
	for _, o := range objects {
		if w, ok := o.(workload.Object); ok {
			w.SetGeneration(2) // which no controller has seen
		}
	}
	code, out, _ := listAll(t, call{all: true}, "", objects...)
	if code != progress.ExitUnderWay || strings.Count(out, "warning: the controller seems not to run") != 1 || strings.Count(out, "updating") != 2 {
		t.Errorf("got exit code %d and\n%s", code, out)
	}
}

func TestStatusOfAllAsJSON(t *testing.T) {
	for namespace, want := range map[string]int{"shop": 1, "default": 0} {
		_, out, _ := listAll(t, call{output: "json"}, namespace, twoNamespaces()...)
		var got struct{ Items []progress.Report }
		if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Items) != want || !strings.Contains(out, `"items": [`) {
			t.Errorf("%s: got %v and %s, want %d reports", namespace, err, out, want)
		}
	}
}
