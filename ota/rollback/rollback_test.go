package rollback

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/history"
	"github.com/edgehub-io/edgehub/ota/podreport"
)

var web = types.NamespacedName{Namespace: "ns", Name: "web-1"}

// podAt returns a pod of a revision, with resourceVersion 10.
func podAt(revision string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: web.Namespace, Name: web.Name, UID: "uid-1", ResourceVersion: "10",
		Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: revision}, Annotations: map[string]string{},
	}}
	for _, f := range change {
		f(p)
	}
	return p
}

func version(v string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.ResourceVersion = v } }
func uid(u types.UID) func(*corev1.Pod)  { return func(p *corev1.Pod) { p.UID = u } }
func upToDate(rev string) func(*corev1.Pod) {
	return condition(api.NeedCondition, corev1.ConditionFalse, api.Message(rev))
}

func outdated(rev string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations[api.TargetAnnotation] = api.Target{Revision: rev, Containers: []api.TargetImage{{Name: "c", Image: "i"}}}.Encode()
		condition(api.NeedCondition, corev1.ConditionTrue, api.Message(rev))(p)
	}
}

func condition(which corev1.PodConditionType, status corev1.ConditionStatus, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		if c := api.Condition(p, which); c != nil {
			c.Status, c.Reason, c.Message = status, "", message
			return
		}
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: which, Status: status, Message: message})
	}
}

func answered(status corev1.ConditionStatus, message string) func(*corev1.Pod) {
	return condition(api.RolledBackCondition, status, message)
}

type node struct {
	*Rollbacks
	dir     string
	online  bool
	pods    []*corev1.Pod // that the node's pods have
	changes int
}

func newNode(t *testing.T) *node {
	n := &node{dir: t.TempDir(), online: true}
	n.open(t)
	return n
}

// open starts it, also after kill -9.
func (n *node) open(t *testing.T) {
	t.Helper()
	var err error
	n.Rollbacks, err = Open(Options{
		Dir: n.dir, Pods: func() []*corev1.Pod { return n.pods }, Online: func() bool { return n.online }, Changed: func() { n.changes++ }, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (n *node) request(t *testing.T, pod *corev1.Pod, revision string) {
	t.Helper()
	if err := n.Request(pod, api.Target{Revision: revision}); err != nil {
		t.Fatal(err)
	}
}

// report applies what is reported of a pod, as an apiserver does.
func (n *node) report(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	patch := podreport.Patch(pod, []podreport.Report{n.Report(pod)}, time.Now())
	if patch == nil {
		return pod
	}
	old, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := strategicpatch.StrategicMergePatch(old, patch, corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	next := &corev1.Pod{}
	if err := json.Unmarshal(merged, next); err != nil {
		t.Fatal(err)
	}
	if again := podreport.Patch(next, []podreport.Report{n.Report(next)}, time.Now()); again != nil {
		t.Errorf("a pod that has what is reported is patched again: %s", again)
	}
	return next
}

// shows returns the state of the pod's rollback, and the revisions that are reported of pod.
func (n *node) shows(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	s, ok := n.State(web)
	if !ok {
		return "none"
	}
	reported := "nothing"
	if w, ok, err := api.RollbackOf(n.report(t, pod)); ok && err == nil {
		reported = w.From + ">" + w.Revision
	}
	return fmt.Sprintf("%s to %s, reports %s: %s", s.State, s.Revision, reported, s.Message)
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %s; want %s", what, got, want)
	}
}

const waits = "it waits for edgehub-controller"

// Each case begins with a rollback from v2 to v1 that was reported, and goes on with what the node sees
// then, one after another.
func TestHowARollbackGoesOn(t *testing.T) {
	type pods = []*corev1.Pod
	refused := answered(corev1.ConditionFalse, "not only images would change")
	tests := map[string]struct {
		seen []func(*corev1.Pod) // each changes the pod
		gone bool
		want string
	}{
		"the controller has not answered":  {nil, false, "InProgress to v1, reports v2>v1: " + waits},
		"it has carried it out":            {[]func(*corev1.Pod){answered(corev1.ConditionTrue, "")}, false, "Done to v1, reports v2>v1: "},
		"it has refused":                   {[]func(*corev1.Pod){refused}, false, "Dropped to v1, reports nothing: not only images would change"},
		"it cannot say":                    {[]func(*corev1.Pod){answered(corev1.ConditionUnknown, "")}, false, "InProgress to v1, reports v2>v1: " + waits},
		"the target is the same":           {[]func(*corev1.Pod){outdated("v2")}, false, "InProgress to v1, reports v2>v1: " + waits},
		"a newer revision ends it":         {[]func(*corev1.Pod){outdated("v3")}, false, "Dropped to v1, reports nothing: a newer revision has come: v3"},
		"also when it was done":            {[]func(*corev1.Pod){answered(corev1.ConditionTrue, ""), outdated("v3")}, false, "Done to v1, reports nothing: "},
		"the controller ends it":           {[]func(*corev1.Pod){answered(corev1.ConditionTrue, ""), refused}, false, "Done to v1, reports nothing: "},
		"the admin has undone the rollout": {[]func(*corev1.Pod){upToDate("v1")}, false, "Done to v1, reports nothing: "},
		"an older state says nothing": {
			[]func(*corev1.Pod){func(p *corev1.Pod) { version("9")(p); outdated("v3")(p) }}, false, "InProgress to v1, reports v2>v1: " + waits,
		},
		"an answer to another wish": {
			[]func(*corev1.Pod){func(p *corev1.Pod) { p.Annotations[api.RollbackAnnotation] = "{}"; refused(p) }}, false, "InProgress to v1, reports v2>v1: " + waits,
		},
		"the pod is gone":              {nil, true, "Dropped to v1, reports nothing: the pod is gone"},
		"the pod is gone after it ran": {[]func(*corev1.Pod){answered(corev1.ConditionTrue, "")}, true, "Done to v1, reports nothing: "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			pod := podAt("v2", upToDate("v2"))
			n.request(t, pod, "v1")
			pod = n.report(t, pod)
			n.Update(pods{pod})
			for _, change := range tt.seen {
				change(pod)
				n.Update(pods{pod})
			}
			shown := pod
			if tt.gone {
				shown = podAt("v2", uid("uid-2"))
				n.Update(pods{shown})
			}
			want(t, "then", n.shows(t, shown), tt.want)
			n.open(t)
			want(t, "after a crash", n.shows(t, shown), tt.want)
			n.Update(pods{shown})
			want(t, "after the next look", n.shows(t, shown), tt.want)
		})
	}
}

func TestARollbackWithoutTheCloudWaits(t *testing.T) {
	n := newNode(t)
	n.online = false
	pod := podAt("v2", upToDate("v2"))
	n.request(t, pod, "v1")
	n.open(t)
	n.Update(nil) // the cache has lost its pods
	want(t, "offline", n.shows(t, pod), "WaitingForCloud to v1, reports v2>v1: it starts when the cloud can be reached")
	n.online = true
	want(t, "online", n.shows(t, pod), "InProgress to v1, reports v2>v1: "+waits)
}

// A hub that is killed just after a pod was created has only the pod before it on the disk, and shows that
// until its watch has caught up with the cloud.
func TestAPodThatTheHubHasLostIsNotGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.online = false
		pod := podAt("v2", upToDate("v2"))
		n.request(t, pod, "v1")
		n.open(t)
		n.pods = []*corev1.Pod{podAt("v1", uid("uid-0"))}
		n.Update(n.pods)
		n.online = true
		ctx, stop := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer stop()
		go n.Run(ctx)
		n.Update(n.pods)
		time.Sleep(goneAfter - time.Second)
		n.Update(n.pods)
		want(t, "while it may come back", n.shows(t, pod), "InProgress to v1, reports v2>v1: "+waits)
		time.Sleep(2 * missingStep)
		want(t, "once it has not", n.shows(t, pod), "Dropped to v1, reports nothing: the pod is gone")

		next := podAt("v2", upToDate("v2"), uid("uid-2"))
		n.request(t, next, "v1")
		n.open(t)
		n.Update(n.pods)
		n.Update([]*corev1.Pod{next})
		want(t, "after it has", n.shows(t, next), "InProgress to v1, reports v2>v1: "+waits)
		n.Update(n.pods)
		want(t, "gone after it was seen", n.shows(t, next), "Dropped to v1, reports nothing: the pod is gone")
	})
}

func TestRequests(t *testing.T) {
	n := newNode(t)
	pod := podAt("v3", outdated("v4"))
	n.request(t, pod, "v2")
	first := n.Report(pod).Annotations[api.RollbackAnnotation]
	changes := n.changes
	n.request(t, pod, "v2")
	if again := n.Report(pod).Annotations[api.RollbackAnnotation]; again != first || n.changes != changes {
		t.Errorf("a repeated request is another wish: %s and %s", first, again)
	}
	want(t, "of an outdated pod", n.shows(t, pod), "InProgress to v2, reports v4>v2: "+waits)
	n.request(t, pod, "v1")
	want(t, "another revision", n.shows(t, pod), "InProgress to v1, reports v4>v1: "+waits)

	if err := n.Withdraw(web); err != nil {
		t.Fatal(err)
	}
	want(t, "withdrawn", n.shows(t, pod), "Withdrawn to v1, reports nothing: it was withdrawn")
	n.request(t, pod, "v1")
	want(t, "again", n.shows(t, pod), "InProgress to v1, reports v4>v1: "+waits)
	if err := n.Withdraw(types.NamespacedName{Name: "another"}); err != nil {
		t.Error(err)
	}
	if err := n.Request(podAt(""), api.Target{Revision: "v1"}); err == nil {
		t.Error("a wish was taken from a pod of which no revision is known")
	}
}

// In a rollout, the controller marks no pod that it does not replace.
func TestAnotherRollbackIsFromTheSameRevision(t *testing.T) {
	n := newNode(t)
	pod := podAt("v3")
	n.request(t, pod, "v2")
	pod = n.report(t, pod)
	answered(corev1.ConditionTrue, "")(pod)
	pod.Labels[appsv1.ControllerRevisionHashLabelKey] = "v2"
	n.Update([]*corev1.Pod{pod})
	n.request(t, pod, "v1")
	want(t, "two back", n.shows(t, pod), "InProgress to v1, reports v3>v1: "+waits)
}

// The answer to the first wish stands on the pod when the second is reported.
func TestAnEarlierAnswerIsNotTheAnswer(t *testing.T) {
	n := newNode(t)
	pod := podAt("v3", upToDate("v3"))
	n.request(t, pod, "v2")
	pod = n.report(t, pod)
	answered(corev1.ConditionFalse, "no")(pod)
	n.Update([]*corev1.Pod{pod})
	want(t, "refused", n.shows(t, pod), "Dropped to v2, reports nothing: no")
	n.request(t, pod, "v1")
	pod = n.report(t, pod)
	n.Update([]*corev1.Pod{pod})
	want(t, "the next", n.shows(t, pod), "InProgress to v1, reports v3>v1: "+waits)
}

func TestAForgedAnnotationIsRemoved(t *testing.T) {
	n := newNode(t)
	pod := podAt("v2")
	pod.Annotations[api.RollbackAnnotation] = api.Rollback{Revision: "v1", From: "v2"}.Encode()
	if _, ok := n.report(t, pod).Annotations[api.RollbackAnnotation]; ok {
		t.Error("a rollback that nobody has asked for stays on the pod")
	}
}

func TestWhatIsOverIsShownForADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := podAt("v2")
		n.request(t, pod, "v1")
		time.Sleep(3 * visible)
		n.Update([]*corev1.Pod{pod})
		if err := n.Withdraw(web); err != nil {
			t.Fatal(err)
		}
		time.Sleep(visible - time.Minute)
		n.Update([]*corev1.Pod{pod})
		if got := n.States(); len(got) != 1 || got[0].State != api.Withdrawn || got[0].Action != api.RollbackAction || got[0].Ended == nil {
			t.Errorf("got %+v", got)
		}
		time.Sleep(2 * time.Minute)
		n.Update([]*corev1.Pod{pod})
		n.open(t)
		if got := n.States(); len(got) != 0 {
			t.Errorf("it is still shown: %+v", got)
		}
	})
}

// images are those on the node.
type images []string

func (i images) Retained(image string) bool { return slices.Contains(i, image) }
func (i images) Missing(image string) bool  { return !slices.Contains(i, image) }

func TestWhichImagesAreThereToGoBackTo(t *testing.T) {
	all := []corev1.Container{{Name: "a", Image: "app:v1"}, {Name: "b", Image: "side:1"}, {Name: "c", Image: "app:v1"}}
	pod := podAt("v1")
	pod.Spec.Containers = all
	for name, tt := range map[string]struct {
		images   Images
		missing  []string
		retained bool
	}{
		"nothing is known": {nil, nil, false},
		"all are there":    {images{"app:v1", "side:1"}, []string{}, true},
		"one is not":       {images{"side:1"}, []string{"app:v1"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			log := slog.New(slog.DiscardHandler)
			ran, err := history.Open(t.TempDir(), log)
			if err != nil {
				t.Fatal(err)
			}
			r, err := Open(Options{Dir: t.TempDir(), History: ran, Images: tt.images, Logger: log})
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Missing(api.NewTarget("v1", &pod.Spec)); !slices.Equal(got, tt.missing) {
				t.Errorf("missing are %q, want %q", got, tt.missing)
			}
			if got := r.History(pod).Items; len(got) != 1 || got[0].Retained != tt.retained {
				t.Errorf("the history is %+v, want retained %t", got, tt.retained)
			}
		})
	}
}

func TestARequestThatCannotBeWrittenIsRefused(t *testing.T) {
	n := newNode(t)
	if err := os.MkdirAll(filepath.Join(n.dir, "ns_web-1.json", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := n.Request(podAt("v2"), api.Target{Revision: "v1"}); err == nil {
		t.Error("it was accepted")
	}
	want(t, "then", n.shows(t, podAt("v2")), "none")
}

// What a bundle offers is not what the cloud has. The wish goes there.
func TestAWishNamesTheTargetOfTheCloud(t *testing.T) {
	n := newNode(t)
	n.online = false
	inCloud := podAt("v2", upToDate("v2"))
	n.pods = []*corev1.Pod{inCloud}
	n.request(t, podAt("v2", outdated("v3")), "v1") // as a bundle marks it
	n.Update(n.pods)
	want(t, "the wish", n.shows(t, inCloud), "WaitingForCloud to v1, reports v2>v1: it starts when the cloud can be reached")
	n.online = true
	n.Update(n.pods)
	want(t, "the wish when the cloud is back", n.shows(t, inCloud), "InProgress to v1, reports v2>v1: it waits for edgehub-controller")
	n.pods = []*corev1.Pod{podAt("v2", upToDate("v2"), version("9"))} // the watch is behind
	n.request(t, podAt("v2", outdated("v3")), "v1")
	want(t, "the wish, if the caller knows more", n.shows(t, inCloud), "InProgress to v1, reports v3>v1: it waits for edgehub-controller")
}
