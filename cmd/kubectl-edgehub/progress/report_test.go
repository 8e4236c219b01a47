package progress

import (
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/api"
)

// Scripts branch on the exit code, and people read what to do.
func TestWhatTheControllersReasonMeans(t *testing.T) {
	const message = "1 of 2 nodes updated"
	of := func(strategy, reason string) *world { return newWorld(strategy, nil).because(reason, message) }
	tests := map[string]struct {
		world *world
		want  Phase
		code  int
		says  string // in the advice
	}{
		"all nodes updated": {of(advanced, rollout.ReasonComplete), Complete, cli.Done, "every node runs the target revision"},
		"all but one that a taint holds": {of(advanced, rollout.ReasonHeldByPlacement).
			condition(api.CompleteCondition, "complete, 1 pod held by placement (node z has a taint)"), Complete, cli.Done, "1 pod held by placement (node z has a taint)"},
		"it goes on":                              {of(advanced, rollout.ReasonUpdating), Updating, ExitUnderWay, "it goes on by itself"},
		"its revision is made":                    {of(advanced, rollout.ReasonNewTemplate), Updating, ExitUnderWay, "Kubernetes makes the revision"},
		"only NotReady nodes left":                {of(advanced, rollout.ReasonWaiting).fleet("z", 1, rollout.WaitingNotReady, ""), Waiting, ExitUnderWay, "every Ready node is updated"},
		"NotReady, and others held":               {of(advanced, rollout.ReasonWaiting).fleet("z", 1, rollout.HeldByPartition, ""), Waiting, ExitUnderWay, "that the annotations let go"},
		"owners hold the rest":                    {of(advanced, rollout.ReasonHeldByOwner), Waiting, ExitUnderWay, "after 24h0m0s at most"},
		"owners have yet to upgrade":              {of("OTA", rollout.ReasonWaitingForOwners), Waiting, ExitUnderWay, "by a POST to the node's own API"},
		"owners went back":                        {of("OTA", rollout.ReasonRolledBack), Held, cli.Done, "the owners of the others went back"},
		"and others wait for a turn":              {of(advanced, rollout.ReasonRolledBack).fleet("b", 1, rollout.Pending, ""), Updating, ExitUnderWay, "it goes on by itself"},
		"held by the partition":                   {of(advanced, rollout.ReasonHeldByPartition), Held, cli.Done, "that the annotations let go is updated"},
		"held by the node selector":               {of(advanced, rollout.ReasonHeldBySelector), Held, cli.Done, "that the annotations let go is updated"},
		"paused":                                  {of(advanced, rollout.ReasonPaused), Paused, ExitHeldUp, "kubectl edgehub resume ds/web -n shop"},
		"halted":                                  {of(advanced, rollout.ReasonHalted).condition(api.HaltedCondition, "n1 and n2 are lost"), Halted, ExitHeldUp, "n1 and n2 are lost. To go on all the same: kubectl edgehub resume"},
		"deletions are refused":                   {of(advanced, rollout.ReasonRefused).condition(api.ProgressingCondition, "not today"), Refused, ExitHeldUp, "not today"},
		"the next pods are refused":               {of(advanced, rollout.ReasonSuccessorRefused).condition(api.ProgressingCondition, "violates"), Refused, ExitHeldUp, "violates"},
		"Kubernetes makes no pod":                 {of(advanced, rollout.ReasonLacking), Missing, ExitHeldUp, "kubectl describe daemonset web -n shop"},
		"a word of a later release":               {of(advanced, "Other"), Unknown, ExitUnderWay, "the controller's word for it, Other"},
		"a StatefulSet of which a pod is missing": {database(), Waiting, ExitUnderWay, "by a POST"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := tt.world.evaluate(t)
			if r.State != tt.want || r.State.ExitCode() != tt.code || !strings.Contains(r.Advice, tt.says) || r.Message != tt.world.says.Message || !r.Spoke {
				t.Errorf("got %s with exit code %d: %s; %s\nwant %s with %d, and %s", r.State, r.State.ExitCode(), r.Message, r.Advice, tt.want, tt.code, tt.says)
			}
		})
	}
}

func TestWhatIsNext(t *testing.T) {
	limited := func(unavailable int) *world {
		w := newWorld(advanced, nil).fleet("b", 1, rollout.Pending, "")
		w.says.Limits = &rollout.Limits{Ready: 4, Unavailable: unavailable, Max: 1}
		return w
	}
	awaiting := limited(1)
	awaiting.says.Groups[0].AwaitsImages = true
	for want, w := range map[string]*world{
		"it goes on by itself": limited(0),
		"the next pods follow when fewer than 1 Ready nodes are unavailable":            limited(1),
		"the next pods follow when their images are there, or after 30m0s without them": awaiting,
	} {
		if r := w.evaluate(t); r.Advice != want {
			t.Errorf("got %q, want %q", r.Advice, want)
		}
	}
}

// What is wrong with the annotations is known without the controller.
func TestAnnotationsThatCannotBeCarriedOut(t *testing.T) {
	for words, w := range map[string]*world{
		`max-unavailable is "abc"`:                      newWorld(advanced, map[string]string{api.MaxUnavailableAnnotation: "abc"}),
		`is "advanced"`:                                 newWorld("advanced", nil),
		`image-prepull is "yes": write true or false`:   newWorld(advanced, map[string]string{api.PrepullAnnotation: "yes"}),
		`image-prepull is "maybe": write true or false`: newWorld("OTA", map[string]string{api.PrepullAnnotation: "maybe"}),
		"no update strategy for a StatefulSet: set it to OTA": func() *world {
			w := database()
			w.workload.GetAnnotations()[api.StrategyAnnotation] = advanced
			return w
		}(),
	} {
		if r := w.evaluate(t); r.State != Invalid || r.State.ExitCode() != ExitHeldUp || !strings.Contains(r.Advice, words) || len(r.Nodes) > 0 {
			t.Errorf("got %s: %s, want %q", r.State, r.Advice, words)
		}
	}
	if r := newWorld("OTA", map[string]string{api.MaxUnavailableAnnotation: "abc"}).because(rollout.ReasonComplete, "").evaluate(t); r.State != Complete {
		t.Errorf("OTA does not read the options of a rollout, and it is %s", r.State)
	}
}

// A script that changes something and asks at once must not take an answer of before for one to the change.
func TestAnAnswerOfBeforeAChangeIsNotShown(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"of the template":  func(w *world) { w.workload.SetGeneration(3) },
		"of an annotation": func(w *world) { w.workload.GetAnnotations()[api.PartitionAnnotation] = "0" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(advanced, nil).fleet("a", 1, rollout.Updated, "").fleet("b", 1, rollout.HeldBySelector, "").because(rollout.ReasonComplete, "done").say()
			change(w)
			r := w.look(t)
			if r.State != Updating || r.Spoke || r.Revision != "" || r.Message != "the controller has yet to see the last change" || r.Nodes[0].State != "" {
				t.Errorf("got %+v", r)
			}
		})
	}
}

// Without a report there is nothing to repeat, and what the controller said in conditions may be of before
// a change.
func TestAControllerThatSaysNothing(t *testing.T) {
	w := newWorld(advanced, nil).fleet("a", 2, rollout.Updated, "").condition(api.CompleteCondition, "2 of 2 nodes updated")
	annotate(w.pods[0], api.HoldAnnotation, holdFor(-time.Hour, 3*time.Hour, "unloading"))
	ds := w.workload.(*appsv1.DaemonSet)
	ds.Status.ObservedGeneration, ds.Status.UpdatedNumberScheduled, ds.Status.DesiredNumberScheduled, ds.Status.NumberAvailable = 2, 1, 4, 3
	r := w.look(t)
	want := strings.TrimPrefix(`
daemonset.apps/web in shop: AdvancedRollingUpdate
on hold          1  a1 until 2026-01-01T12:00:00Z ("unloading")
it is not known where the nodes stand; Kubernetes counts 1 of 4 pods of the newest revision, and 3 available ones of any
unknown: the controller has said nothing yet
`, "\n")
	if got := r.text(0); got != want || r.State.ExitCode() != ExitUnderWay || r.Spoke {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if got := r.table(); !strings.Contains(got, "\na2     -       web-a2   1/1     Running   0          7c9b       -\n") {
		t.Errorf("got\n%s", got)
	}
	if got := Table([]*Report{r}); !strings.Contains(got, "shop        ds/web   unknown   -         -             1 on hold\n") {
		t.Errorf("got\n%s", got)
	}
	ds.Generation++
	if r := w.look(t); strings.Contains(r.Message, "counts") {
		t.Errorf("Kubernetes has yet to count what is there after the change: %s", r.Message)
	}
	set := database()
	set.workload.(*appsv1.StatefulSet).Status = appsv1.StatefulSetStatus{ObservedGeneration: 2, UpdatedReplicas: 1, Replicas: 3, AvailableReplicas: 2}
	if r := set.look(t); r.State != Unknown || !strings.Contains(r.Message, "counts 1 of 3 pods of the newest revision, and 2 available") {
		t.Errorf("got %s: %s", r.State, r.Message)
	}
}

func TestOneThatNeverOptedIn(t *testing.T) {
	w := newWorld(advanced, nil)
	w.workload.SetAnnotations(nil)
	_, err := Evaluate(w.workload, nil, start)
	var notOptedIn NotOptedIn
	if !errors.As(err, &notOptedIn) || !strings.Contains(err.Error(), "shop/web") {
		t.Errorf("got %v, want an error that says that shop/web did not opt in", err)
	}
}

func TestAWarningAndTheAdviceAgree(t *testing.T) {
	r := newWorld(advanced, nil).fleet("a", 2, rollout.Pending, "").evaluate(t)
	r.Warn("the controller seems not to run")
	if r.Advice != "it goes on when the controller runs" {
		t.Errorf("the advice is %q beside a warning that nothing will happen", r.Advice)
	}
}

func TestReadyOnly(t *testing.T) {
	tests := map[string]struct {
		world *world
		want  bool
	}{
		"one node is NotReady, the others are updated": {newWorld(advanced, nil).fleet("z", 1, rollout.WaitingNotReady, "").because(rollout.ReasonWaiting, ""), true},
		"one node is NotReady, another one pending":    {newWorld(advanced, nil).fleet("z", 1, rollout.Pending, ""), false},
		"an owner has not upgraded":                    {newWorld("OTA", nil).fleet("a", 2, rollout.WaitingForOwner, "").because(rollout.ReasonWaitingForOwners, ""), false},
		"an owner holds a pod":                         {newWorld(advanced, nil).fleet("a", 2, rollout.HeldByOwner, "").because(rollout.ReasonHeldByOwner, ""), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.world.evaluate(t).OnlyNotReadyLeft(); got != tt.want {
				t.Errorf("only NotReady nodes left: got %t, want %t", got, tt.want)
			}
		})
	}
}
