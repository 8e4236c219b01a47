package inplace_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/inplace"
)

// Images of the pod's container "app". The container "other" stays.
const was, becomes = "app:v1", "app:v2"

// pod is one of revision old at version 10 that runs in container A.
func pod(changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u", ResourceVersion: "10", Labels: map[string]string{"controller-revision-hash": "old"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: was}, {Name: "other", Image: "other:v1"}}},
	}
	for _, change := range append([]func(*corev1.Pod){runs("A"), readiness(corev1.ConditionTrue)}, changes...) {
		change(p)
	}
	return p
}

// container gives the pod's container a status.
func container(s corev1.ContainerStatus) func(*corev1.Pod) {
	s.Name = "app"
	return func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{s} }
}

// runs has the pod's container run, with an ID.
func runs(id string) func(*corev1.Pod) { return runsAfter(id, 0) }

func runsAfter(id string, restarts int32) func(*corev1.Pod) {
	return container(corev1.ContainerStatus{ContainerID: id, RestartCount: restarts, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
}

// backsOff has the container with an ID have ended, and wait for the next.
func backsOff(id string, restarts int32) func(*corev1.Pod) {
	return container(corev1.ContainerStatus{
		ContainerID: id, RestartCount: restarts,
		State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 7, ContainerID: id}},
	})
}

func waits(id, reason, message string) func(*corev1.Pod) {
	return container(corev1.ContainerStatus{ContainerID: id, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}})
}

func readiness(s corev1.ConditionStatus) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: s}} }
}

func image(i string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Image = i }
}

func version(v string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.ResourceVersion = v } }

var target = api.Target{Revision: "new", InPlace: []api.ImageChange{{Name: "app", From: was, To: becomes}}}

// event is what a Record may meet.
type event func(inplace.Record) inplace.Record

func seen(changes ...func(*corev1.Pod)) event {
	return func(r inplace.Record) inplace.Record { return r.Seen(pod(changes...)) }
}

func after(d time.Duration) event { return func(r inplace.Record) inplace.Record { return r.After(d) } }

// checked is the outcome of the owner's checks.
func checked(failed string, err error) event {
	return func(r inplace.Record) inplace.Record { return r.Checked(failed, err) }
}

func booted(id string) event { return func(r inplace.Record) inplace.Record { return r.Booted(id) } }

func offered(r inplace.Record) inplace.Record { return r.Offer() }

func restored(r inplace.Record) inplace.Record { return r.StoreRestored() }

func back(r inplace.Record) inplace.Record { r, _ = r.GoBack(); return r }

func begun(t *testing.T) inplace.Record {
	t.Helper()
	r, err := inplace.Begin(nil, pod(), target, "boot-0", time.Unix(100, 0))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// in returns a record in a state, as it gets there.
func in(t *testing.T, s inplace.State) inplace.Record {
	t.Helper()
	ways := map[inplace.State][]event{
		inplace.Shown:     {},
		inplace.Probation: {seen(runs("B"), readiness(corev1.ConditionFalse))},
		inplace.Passed:    {seen(runs("B")), after(inplace.MinReady), checked("", nil)},
		inplace.Offered:   {seen(runs("B")), after(inplace.MinReady), checked("", nil), offered},
		inplace.Confirmed: {seen(runs("B")), after(inplace.MinReady), checked("", nil), offered, seen(runs("B"), image(becomes), version("20"))},
		inplace.Undoing:   {seen(runs("B")), back},
		inplace.Undone:    {seen(runs("B")), back, seen(runs("C"))},
	}
	r := begun(t)
	for _, e := range ways[s] {
		r = e(r)
	}
	if r.State != s {
		t.Fatalf("the way to %s ends in %s", s, r.State)
	}
	return r
}

var states = []inplace.State{inplace.Shown, inplace.Probation, inplace.Passed, inplace.Offered, inplace.Confirmed, inplace.Undoing, inplace.Undone}

// Every event in every state. A state that an event does not name stays.
func TestEveryEventInEveryState(t *testing.T) {
	const (
		shown, probation, passed, offer, confirmed, undoing, undone = inplace.Shown, inplace.Probation, inplace.Passed, inplace.Offered, inplace.Confirmed, inplace.Undoing, inplace.Undone
	)
	type moves map[inplace.State]inplace.State
	for name, tt := range map[string]struct {
		event event
		moves moves
	}{
		"the cloud has the status of before":   {seen(), moves{}},
		"a new container runs":                 {seen(runs("B"), readiness(corev1.ConditionFalse)), moves{shown: probation}},
		"it is Ready":                          {seen(runs("B")), moves{shown: probation}},
		"it ends once":                         {seen(backsOff("B", 0)), moves{shown: probation}},
		"a third container runs":               {seen(runs("C")), moves{shown: probation, undoing: undone}},
		"no container has a status":            {seen(func(p *corev1.Pod) { p.Status = corev1.PodStatus{} }), nil},
		"kubelet lacks the new image":          {seen(waits("A", "ErrImageNeverPull", `Container image "app:v2" is not present with pull policy of Never`)), moves{shown: undoing}},
		"containerd does not answer":           {seen(waits("A", "ImageInspectError", `Failed to inspect image "app:v2": connection refused`)), nil},
		"kubelet lacks the old image":          {seen(waits("A", "ImagePullBackOff", `Back-off pulling image "app:v1"`)), nil},
		"time passes":                          {after(time.Second), nil},
		"the limit passes":                     {after(24 * time.Hour), moves{shown: undoing, probation: undoing}},
		"the checks pass too early":            {checked("", nil), nil},
		"a check fails":                        {checked("it leaks", nil), moves{shown: undoing, probation: undoing}},
		"the checks cannot be run":             {checked("", errors.New("no systemd")), nil},
		"the same boot":                        {booted("boot-0"), nil},
		"another boot":                         {booted("boot-1"), nil},
		"a boot that is not known":             {booted(""), nil},
		"the cloud is to be told":              {offered, moves{passed: offer}},
		"the owner goes back":                  {back, moves{shown: undoing, probation: undoing, passed: undoing}},
		"the cloud has the new image":          {seen(runs("B"), image(becomes), version("20")), moves{shown: confirmed, probation: confirmed, passed: confirmed, offer: confirmed}},
		"somebody has set another image":       {seen(runs("B"), image("app:hand"), version("20")), moves{shown: confirmed, probation: confirmed, passed: confirmed, offer: confirmed}},
		"an object from before has others":     {seen(runs("A"), image("app:v0"), version("9")), moves{}},
		"the apiserver's store was restored":   {restored, moves{confirmed: offer}},
		"a version of the cloud is no number":  {seen(runs("B"), version("x"), readiness(corev1.ConditionFalse)), moves{shown: probation}},
		"the pod fails and no container is in": {seen(container(corev1.ContainerStatus{})), nil},
	} {
		for _, from := range states {
			t.Run(name+", "+string(from), func(t *testing.T) {
				want, ok := tt.moves[from]
				if !ok {
					want = from
				}
				r := in(t, from)
				next := tt.event(r)
				if next.State != want {
					t.Fatalf("%s, want %s (%s)", next.State, want, next.Message)
				}
				if again := tt.event(next); again.State != want {
					t.Errorf("the same again: %s", again.State)
				}
				if next.State == undoing && from != undoing && (next.Reason == "" || next.Message == "") {
					t.Error("nobody is told why")
				}
			})
		}
	}
}

func TestWhatKubeletIsShown(t *testing.T) {
	news, olds, others := map[string]string{"app": becomes}, map[string]string{"app": was, "other": "x"}, map[string]string{"app": "app:hand"}
	for name, tt := range map[string]struct {
		state   inplace.State
		have    map[string]string
		version string
		want    map[string]string
	}{
		"shown":                                      {inplace.Shown, olds, "10", news},
		"on probation":                               {inplace.Probation, olds, "11", news},
		"passed":                                     {inplace.Passed, olds, "11", news},
		"offered":                                    {inplace.Offered, olds, "11", news},
		"offered, a version that is no number":       {inplace.Offered, olds, "", news},
		"offered, and the cloud has followed":        {inplace.Offered, map[string]string{"app": becomes}, "20", nil},
		"somebody has set another image":             {inplace.Offered, others, "20", nil},
		"the container is not in the object":         {inplace.Offered, map[string]string{"other": "x"}, "20", nil},
		"a lagging apiserver has a pod from before":  {inplace.Offered, map[string]string{"app": "app:v0"}, "9", news},
		"confirmed, and the apiserver lags":          {inplace.Confirmed, olds, "19", news},
		"confirmed, and somebody has set it back":    {inplace.Confirmed, olds, "20", nil},
		"confirmed, and later":                       {inplace.Confirmed, olds, "21", nil},
		"confirmed, and the apiserver lags very far": {inplace.Confirmed, map[string]string{"app": "app:v0"}, "9", news},
		"undone":                      {inplace.Undone, olds, "10", nil},
		"undoing":                     {inplace.Undoing, olds, "10", nil},
		"undone, an object of before": {inplace.Undone, map[string]string{"app": "app:v0"}, "9", nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := in(t, tt.state)
			if got := r.Show(tt.version, tt.have); !maps.Equal(got, tt.want) {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

// A store that was restored has old versions again, which mean other objects.
func TestARestoredStoreVoidsVersions(t *testing.T) {
	r := in(t, inplace.Confirmed).StoreRestored()
	for _, v := range []string{"5", "19", "30"} {
		if got := r.Show(v, map[string]string{"app": was}); got["app"] != becomes {
			t.Errorf("at version %s kubelet is shown %v", v, got)
		}
	}
	if got := r.Show("5", map[string]string{"app": "app:hand"}); got != nil {
		t.Errorf("other images at a version from before: %v", got)
	}
	if r = r.Seen(pod(runs("B"), image(becomes), version("7"))); r.State != inplace.Confirmed || r.Confirmed != "7" {
		t.Errorf("after the cloud has followed again: %s at %q", r.State, r.Confirmed)
	}
	hand := in(t, inplace.Shown).Seen(pod(image("app:hand"), version("20"))).StoreRestored()
	if hand.State != inplace.Confirmed {
		t.Errorf("what the cloud has decided otherwise is %s", hand.State)
	}
}

// An owner's rollback, or somebody else, may have given the pod other images since the cloud has followed.
func TestWhatTheCloudHasDecidedSinceIsNotForgotten(t *testing.T) {
	olds := map[string]string{"app": was}
	for name, tt := range map[string]struct {
		seen  *corev1.Pod
		shows string // of an object with the old images, from before the cloud has followed, and after a restore
	}{
		"the images that it has followed with": {pod(runs("B"), image(becomes), version("30")), becomes},
		"the earlier images":                   {pod(runs("C"), version("30")), ""},
		"others":                               {pod(runs("C"), image("app:hand"), version("30")), ""},
		"an apiserver lags":                    {pod(runs("B"), version("19")), becomes},
	} {
		t.Run(name, func(t *testing.T) {
			r := in(t, inplace.Confirmed).Seen(tt.seen)
			if r = r.Seen(tt.seen); r.State != inplace.Confirmed || (r.Reason == api.ReasonCloudOthers) != (tt.shows == "") {
				t.Errorf("it is %s, %q", r.State, r.Reason)
			}
			for _, v := range []string{"9", "19"} {
				if got := r.Show(v, olds)["app"]; got != tt.shows {
					t.Errorf("an apiserver that lags at %s has kubelet shown %q", v, got)
				}
			}
			if r = r.StoreRestored(); r.Show("5", olds)["app"] != tt.shows {
				t.Errorf("a restored store has kubelet shown %q", r.Show("5", olds)["app"])
			}
		})
	}
}

func TestASecondUpgradeFollowsOnTheFirst(t *testing.T) {
	second := api.Target{Revision: "newer", InPlace: []api.ImageChange{{Name: "app", From: becomes, To: "app:v3"}}}
	now := pod(runs("B"), image(becomes), version("20"))
	for _, state := range states {
		t.Run(string(state), func(t *testing.T) {
			before, p := in(t, state), now
			want := state == inplace.Confirmed || state == inplace.Undone
			next := second
			if state == inplace.Undone {
				p, next.InPlace = pod(runs("C")), []api.ImageChange{{Name: "app", From: was, To: "app:v3"}}
			}
			r, err := inplace.Begin(&before, p, next, "boot-0", time.Unix(200, 0))
			if (err == nil) != want {
				t.Fatalf("%v", err)
			}
			if err != nil {
				return
			}
			if got := r.Show("15", map[string]string{"app": was}); state == inplace.Confirmed && got["app"] != "app:v3" {
				t.Errorf("a lagging apiserver has kubelet shown %v", got)
			}
		})
	}
}

func TestARevisionThatFailedIsNotTriedAgain(t *testing.T) {
	failed := in(t, inplace.Shown).After(24 * time.Hour).Seen(pod(runs("C")))
	if failed.State != inplace.Undone {
		t.Fatal(failed.State)
	}
	_, err := inplace.Begin(&failed, pod(runs("C")), target, "", time.Unix(200, 0))
	if err == nil || !strings.Contains(err.Error(), "the pod came back from it: kubelet has not started the new version within") {
		t.Errorf("%v", err)
	}
	going := in(t, inplace.Shown).After(24 * time.Hour)
	if _, err := inplace.Begin(&going, pod(runs("B")), target, "", time.Unix(200, 0)); err == nil || !strings.Contains(err.Error(), "the pod came back from it") {
		t.Errorf("before the old version runs: %v", err)
	}
	owner := in(t, inplace.Undone)
	if _, err := inplace.Begin(&owner, pod(runs("C")), target, "", time.Unix(200, 0)); err != nil {
		t.Errorf("an owner who went back may not try again: %v", err)
	}
	other := target
	other.Revision = "newer"
	next, err := inplace.Begin(&failed, pod(runs("C")), other, "", time.Unix(200, 0))
	if err != nil || len(next.Failed) != 1 {
		t.Errorf("%v, %v", next.Failed, err)
	}
}

func TestProbation(t *testing.T) {
	pass, fail, cannot, unready := checked("", nil), checked("check disk failed", nil), checked("", errors.New("no systemd")), seen(runs("B"), readiness(corev1.ConditionFalse))
	second := func(p *corev1.Pod) { p.Status.Conditions = nil }
	for name, tt := range map[string]struct {
		events []event
		want   inplace.State
		reason string
	}{
		"Ready for too short a time": {[]event{seen(runs("B")), after(9 * time.Second), pass}, inplace.Probation, ""},
		"Ready for long enough":      {[]event{seen(runs("B")), after(5 * time.Second), seen(runs("B")), after(5 * time.Second), pass}, inplace.Passed, ""},
		"a break in between": {[]event{
			seen(runs("B")), after(9 * time.Second), seen(runs("B"), readiness(corev1.ConditionFalse)), seen(runs("B")), after(9 * time.Second),
		}, inplace.Probation, ""},
		"a crash in between that was seen late":     {[]event{seen(runs("B")), after(9 * time.Second), seen(runsAfter("C", 1)), after(9 * time.Second)}, inplace.Probation, ""},
		"no condition Ready":                        {[]event{seen(runs("B"), second), after(time.Minute)}, inplace.Probation, ""},
		"Ready, and the new container is not there": {[]event{seen(runs("A")), after(time.Minute)}, inplace.Shown, ""},
		"three crashes, each seen": {[]event{
			seen(runs("B")), seen(backsOff("B", 0)), seen(runsAfter("C", 1)), seen(backsOff("C", 1)), seen(runsAfter("D", 2)), seen(backsOff("D", 2)),
		}, inplace.Undoing, api.ReasonCrashed},
		"the pod is being deleted, and its containers end": {[]event{
			seen(runs("B")), seen(runsAfter("E", 3), func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }),
		}, inplace.Probation, ""},
		"two crashes": {[]event{
			seen(runs("B")), seen(backsOff("B", 0)), seen(backsOff("B", 0)), seen(runsAfter("C", 1)), seen(backsOff("C", 1)), seen(runsAfter("D", 2)),
		}, inplace.Probation, ""},
		"three crashes, seen at once":                              {[]event{seen(runs("B")), seen(runsAfter("E", 3))}, inplace.Undoing, api.ReasonCrashed},
		"the old container has crashed often":                      {[]event{seen(runsAfter("B", 9)), after(time.Second)}, inplace.Probation, ""},
		"a status of before, as the cloud has it after its return": {[]event{seen(runs("B")), after(8 * time.Second), seen(runs("A"), readiness(corev1.ConditionFalse)), after(2 * time.Second), pass}, inplace.Passed, ""},
		"a reboot is no crash": {[]event{
			seen(runs("B")), seen(backsOff("B", 0)), seen(runsAfter("C", 1)), seen(backsOff("C", 1)), seen(runsAfter("D", 2)),
			booted("1"), seen(runsAfter("D", 2)), seen(container(corev1.ContainerStatus{ContainerID: "D", RestartCount: 2, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}})), seen(runsAfter("E", 3)), after(time.Second),
		}, inplace.Probation, ""},
		"a container from before a boot is not Ready":     {[]event{seen(runs("B")), booted("1"), seen(runs("B")), after(time.Minute)}, inplace.Probation, ""},
		"a reboot, and then it is Ready":                  {[]event{seen(runs("B")), after(9 * time.Second), booted("1"), seen(runsAfter("C", 1)), after(10 * time.Second), pass}, inplace.Passed, ""},
		"two boots":                                       {[]event{booted("1"), booted("2"), booted("2")}, inplace.Shown, ""},
		"three boots":                                     {[]event{booted("1"), seen(runs("B")), booted("2"), booted("3")}, inplace.Undoing, api.ReasonRebooted},
		"three boots after it has passed":                 {[]event{seen(runs("B")), after(10 * time.Second), pass, booted("1"), booted("2"), booted("3")}, inplace.Passed, ""},
		"the limit, without a container":                  {[]event{after(limit - time.Second), after(time.Second)}, inplace.Undoing, api.ReasonNotReady},
		"just before the limit":                           {[]event{after(limit - time.Second)}, inplace.Shown, ""},
		"the limit, with a container that is never Ready": {[]event{seen(runs("B"), readiness(corev1.ConditionFalse)), after(limit)}, inplace.Undoing, api.ReasonNotReady},
		"Ready at last":                                   {[]event{after(limit - 10*time.Second), seen(runs("B")), after(10 * time.Second), pass}, inplace.Passed, ""},
		"the checks have not ended":                       {[]event{seen(runs("B")), after(time.Hour), seen(runs("B"))}, inplace.Probation, ""},
		"the checks end when it is Ready no longer":       {[]event{seen(runs("B")), after(time.Minute), unready, pass}, inplace.Probation, ""},
		"and are run again": {[]event{
			seen(runs("B")), after(time.Minute), unready, pass, seen(runs("B")), after(10 * time.Second), pass,
		}, inplace.Passed, ""},
		"a check fails": {[]event{seen(runs("B")), after(time.Minute), fail}, inplace.Undoing, api.ReasonCheckFailed},
		"a check fails when it is Ready no longer":           {[]event{seen(runs("B")), after(time.Minute), unready, fail}, inplace.Undoing, api.ReasonCheckFailed},
		"it crashes while the checks run":                    {[]event{seen(runs("B")), after(time.Minute), seen(runsAfter("E", 3)), pass}, inplace.Undoing, api.ReasonCrashed},
		"it is Ready no longer while they run, at the limit": {[]event{seen(runs("B")), after(time.Minute), unready, after(limit), pass}, inplace.Undoing, api.ReasonNotReady},
		"the checks could not be run yet":                    {[]event{seen(runs("B")), after(time.Minute), cannot, after(time.Second)}, inplace.Probation, ""},
		"and could then":                                     {[]event{seen(runs("B")), after(time.Minute), cannot, after(time.Second), pass}, inplace.Passed, ""},
		"the checks could not be run until the limit":        {[]event{seen(runs("B")), after(limit), cannot, after(59 * time.Second), cannot, after(time.Second)}, inplace.Undoing, api.ReasonCheckFailed},
		"the checks could not be run once, at the limit":     {[]event{seen(runs("B")), after(limit), cannot, after(59 * time.Second)}, inplace.Probation, ""},
		"the owner goes back while they run":                 {[]event{seen(runs("B")), after(time.Minute), back, pass}, inplace.Undoing, api.ReasonUndone},
		"a boot while they run":                              {[]event{seen(runs("B")), after(time.Minute), booted("1"), seen(runs("B")), pass}, inplace.Probation, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := begun(t)
			for _, e := range tt.events {
				r = e(r)
			}
			if r.State != tt.want || r.Reason != tt.reason {
				t.Errorf("%s %s (%s)", r.State, r.Reason, r.Message)
			}
		})
	}
}

// Kubelet replaces one container after the other, and each may be the one that does not work.
func TestAnUpgradeOfTwoContainers(t *testing.T) {
	both := func(app, other string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			runs(app)(p)
			second := p.Status.ContainerStatuses[0]
			second.Name, second.ContainerID = "other", other
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, second)
		}
	}
	other := func(change func(*corev1.ContainerStatus)) func(*corev1.Pod) {
		return func(p *corev1.Pod) { both("B", "P")(p); change(&p.Status.ContainerStatuses[1]) }
	}
	to := target
	to.InPlace = []api.ImageChange{{Name: "app", From: was, To: becomes}, {Name: "other", From: "other:v1", To: "other:v2"}}
	pass, news := checked("", nil), map[string]string{"app": becomes, "other": "other:v2"}
	for name, tt := range map[string]struct {
		events []event
		want   inplace.State
		reason string
	}{
		"the second is yet to be replaced": {[]event{seen(both("B", "O")), after(time.Minute), pass}, inplace.Probation, ""},
		"both run":                         {[]event{seen(both("B", "O")), seen(both("B", "P")), after(10 * time.Second), pass}, inplace.Passed, ""},
		"the second crashes":               {[]event{seen(both("B", "P")), seen(other(func(s *corev1.ContainerStatus) { s.ContainerID, s.RestartCount = "S", 3 }))}, inplace.Undoing, api.ReasonCrashed},
		"kubelet lacks the image of the second": {[]event{seen(other(func(s *corev1.ContainerStatus) {
			s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImageNeverPull", Message: `"other:v2"`}}
		}))}, inplace.Undoing, api.ReasonNoImage},
		"the limit passes, and the second is the old one":     {[]event{seen(both("B", "O")), after(limit), after(30 * time.Second)}, inplace.Undoing, api.ReasonNotReady},
		"the owner goes back before the second is replaced":   {[]event{seen(both("B", "O")), back, seen(both("C", "O"))}, inplace.Undone, api.ReasonUndone},
		"the owner goes back, and the second is the new one":  {[]event{seen(both("B", "P")), back, seen(both("C", "P"))}, inplace.Undoing, api.ReasonUndone},
		"the cloud has the new images":                        {[]event{seen(both("B", "P"), image(becomes), version("20"), func(p *corev1.Pod) { p.Spec.Containers[1].Image = "other:v2" })}, inplace.Confirmed, ""},
		"somebody has set one of the new images in the cloud": {[]event{seen(both("B", "P"), image(becomes), version("20"))}, inplace.Confirmed, api.ReasonCloudOthers},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := inplace.Begin(nil, pod(both("A", "O")), to, "boot-0", time.Unix(100, 0))
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Show("11", map[string]string{"app": was, "other": "other:v1"}); !maps.Equal(got, news) {
				t.Errorf("kubelet is shown %v", got)
			}
			if got := r.Show("11", map[string]string{"app": becomes, "other": "other:v1"}); got != nil {
				t.Errorf("of an object with one of the images, kubelet is shown %v", got)
			}
			for _, e := range tt.events {
				r = e(r)
			}
			if r.State != tt.want || r.Reason != tt.reason {
				t.Errorf("%s %s (%s)", r.State, r.Reason, r.Message)
			}
		})
	}
}

// limit is the probation's of a pod without probes: the grace of a container, the margin, and MinReady.
const limit = 30*time.Second + time.Minute + inplace.MinReady

func TestTheLimitCountsGraceProbesAndMinReady(t *testing.T) {
	grace, probe := int64(100), corev1.Probe{InitialDelaySeconds: 5, PeriodSeconds: 10, TimeoutSeconds: 1, FailureThreshold: 3, SuccessThreshold: 1}
	for name, tt := range map[string]struct {
		change func(*corev1.Pod, *api.Target)
		want   time.Duration
	}{
		"nothing said": {func(*corev1.Pod, *api.Target) {}, limit},
		"a grace":      {func(p *corev1.Pod, _ *api.Target) { p.Spec.TerminationGracePeriodSeconds = &grace }, limit + 70*time.Second},
		"two containers": {func(p *corev1.Pod, t *api.Target) {
			t.InPlace = append(t.InPlace, api.ImageChange{Name: "other", From: "other:v1", To: "other:v2"})
		}, limit + 30*time.Second},
		"probes": {func(p *corev1.Pod, _ *api.Target) {
			p.Spec.Containers[0].StartupProbe, p.Spec.Containers[0].ReadinessProbe = &probe, &probe
		}, limit + 2*(5+4*11)*time.Second},
		"minReadySeconds":                   {func(_ *corev1.Pod, t *api.Target) { t.MinReadySeconds = 40 }, limit + 30*time.Second},
		"hours of grace are bounded":        {func(p *corev1.Pod, _ *api.Target) { grace = 7200; p.Spec.TerminationGracePeriodSeconds = &grace }, 30*time.Minute + inplace.MinReady},
		"hours of minReadySeconds are kept": {func(_ *corev1.Pod, t *api.Target) { t.MinReadySeconds = 7200 }, limit - inplace.MinReady + 2*time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			grace = 100
			p, to := pod(), target
			to.InPlace = append([]api.ImageChange(nil), target.InPlace...)
			tt.change(p, &to)
			r, err := inplace.Begin(nil, p, to, "", time.Time{})
			if err != nil || r.Limit != tt.want {
				t.Errorf("%v, want %v; %v", r.Limit, tt.want, err)
			}
		})
	}
}

// Events leave the record that they are applied to as it was: it is still the one on disk.
func TestEventsDoNotChangeTheirRecord(t *testing.T) {
	for _, state := range states {
		r := in(t, state)
		before := fmt.Sprintf("%+v", r)
		for _, e := range []event{seen(backsOff("X", 5)), after(time.Hour), booted("x"), back, checked("x", nil), checked("", errors.New("x")), offered, restored, seen(image("x"), version("99"))} {
			e(r)
		}
		if now := fmt.Sprintf("%+v", r); now != before {
			t.Errorf("%s:\n%s\n%s", state, before, now)
		}
	}
}
