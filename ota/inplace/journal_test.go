package inplace_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/inplace"
)

// rig is a Journal, and what it reads and says.
type rig struct {
	*inplace.Journal

	dir     string
	online  bool
	changes int
	events  []string
	boot    string
	checks  func(context.Context) (string, error) // nil: there are none
}

func newRig(t *testing.T) *rig {
	r := &rig{dir: filepath.Join(t.TempDir(), "inplace"), boot: "boot-0"}
	r.open(t)
	return r
}

// open opens the Journal of what is on disk, as a hub that starts does.
func (r *rig) open(t *testing.T) {
	t.Helper()
	var err error
	r.Journal, err = inplace.Open(inplace.Options{
		OwnersChecks: func(ctx context.Context, pod *corev1.Pod) (string, error) {
			if pod.Spec.Containers[0].Image != becomes || pod.Labels["controller-revision-hash"] != target.Revision {
				t.Errorf("the checks are for %s of revision %v", pod.Spec.Containers[0].Image, pod.Labels)
			}
			if r.checks == nil {
				return "", nil
			}
			return r.checks(ctx)
		},
		Dir: r.dir, Boot: r.boot, Online: func() bool { return r.online }, Changed: func() { r.changes++ },
		Event: func(about *corev1.ObjectReference, eventType, reason, _ string) {
			r.events = append(r.events, string(about.UID)+" "+eventType+" "+reason)
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
}

func isNotPossible(err error) bool {
	_, ok := errors.AsType[*ota.NotInPlaceError](err)
	return ok
}

// run has time pass.
func (r *rig) run(t *testing.T, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }()
	time.Sleep(d + time.Millisecond)
	cancel()
	<-done
}

func (r *rig) begin(t *testing.T) {
	t.Helper()
	if err := r.Begin(pod(), target); err != nil {
		t.Fatal(err)
	}
}

// breakDisk has writes fail until the disk is mended.
func (r *rig) breakDisk(t *testing.T) (mend func()) {
	t.Helper()
	if err := os.Rename(r.dir, r.dir+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := errors.Join(os.Remove(r.dir), os.Rename(r.dir+".away", r.dir)); err != nil {
			t.Fatal(err)
		}
	}
}

// shows returns the image that kubelet is shown of the pod as the cloud has it.
func (r *rig) shows(version string) string {
	images := r.Images("u", version, map[string]string{"app": was})
	if images == nil {
		return was
	}
	return images["app"]
}

func (r *rig) state() api.UpgradeState {
	u, _ := r.State(podName)
	return u.State
}

var podName = types.NamespacedName{Namespace: "ns", Name: "web"}

// The whole way, and after each step a hub that was killed there: it shows, says and does the same.
func TestAHubThatIsKilledAnywhereGoesOn(t *testing.T) {
	online := func(r *rig) { r.online = true }
	update := func(changes ...func(*corev1.Pod)) func(*rig) {
		return func(r *rig) { r.Update([]*corev1.Pod{pod(changes...)}) }
	}
	news, olds := becomes, was
	for name, steps := range map[string][]struct {
		do    func(*rig)
		runs  time.Duration
		shows string
		state api.UpgradeState
	}{
		"it works, and the cloud follows": {
			{do: update(), shows: olds},
			{do: func(r *rig) { _ = r.Begin(pod(), target) }, shows: news, state: api.InProgress},
			{runs: time.Second, shows: news, state: api.InProgress},
			{do: update(runs("B"), readiness(corev1.ConditionFalse)), shows: news, state: api.InProgress},
			{do: update(runs("B")), runs: 10 * time.Second, shows: news, state: api.Done},
			{runs: time.Hour, shows: news, state: api.Done},
			{do: online, runs: time.Hour, shows: news, state: api.Done}, // the cloud refuses it for so long
			{do: update(runs("A")), shows: news, state: api.Done},       // the cloud's old status
			{do: update(runs("B"), image(becomes), version("20")), shows: news, state: api.Done},
		},
		"it does not work": {
			{do: func(r *rig) { _ = r.Begin(pod(), target) }, shows: news, state: api.InProgress},
			{do: update(runs("B"), readiness(corev1.ConditionFalse)), runs: limit - 5*time.Second, shows: news, state: api.InProgress},
			{do: update(runs("B"), readiness(corev1.ConditionFalse)), runs: 15 * time.Second, shows: olds, state: api.Dropped},
			{do: update(runs("C")), shows: olds, state: api.Dropped},
			{do: online, runs: time.Minute, shows: olds, state: api.Dropped},
		},
		"the owner goes back": {
			{do: func(r *rig) { _ = r.Begin(pod(), target) }, shows: news, state: api.InProgress},
			{do: update(runs("B")), runs: 10 * time.Second, shows: news, state: api.Done},
			{do: func(r *rig) { _, _ = r.GoBack("u") }, shows: olds, state: api.Dropped},
			{do: update(runs("C")), shows: olds, state: api.Dropped},
		},
	} {
		for killed := range len(steps) + 1 { // after this step; the last: never
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t)
					for i, s := range steps {
						if s.do != nil {
							s.do(r)
						}
						if s.runs > 0 {
							r.run(t, s.runs)
						}
						if i == killed {
							r.open(t)
						}
						if got := r.shows("11"); got != s.shows || r.state() != s.state {
							t.Fatalf("killed after step %d, in step %d: kubelet is shown %s, state %q", killed, i, got, r.state())
						}
					}
				})
			})
		}
	}
}

func TestNothingCountsThatCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		mend := r.breakDisk(t)
		if err := r.Begin(pod(), target); err == nil || r.shows("10") != was {
			t.Errorf("an upgrade that is not on disk: %v, kubelet is shown %s", err, r.shows("10"))
		}
		mend()
		r.begin(t)
		r.Update([]*corev1.Pod{pod(runs("B"), readiness(corev1.ConditionFalse))})
		mend = r.breakDisk(t)
		if _, err := r.GoBack("u"); err == nil || r.shows("10") != becomes {
			t.Errorf("a way back that is not on disk: %v, kubelet is shown %s", err, r.shows("10"))
		}
		r.run(t, limit+time.Minute)
		if r.shows("10") != becomes || r.state() != api.InProgress {
			t.Errorf("a limit that is not on disk: kubelet is shown %s, state %s", r.shows("10"), r.state())
		}
		mend()
		r.run(t, 2*time.Second)
		if r.shows("10") != was || r.state() != api.Dropped {
			t.Errorf("once the disk is mended: kubelet is shown %s, state %s", r.shows("10"), r.state())
		}
	})
}

// What was seen while the disk was broken counts once it is mended: nothing else may happen to the pod.
func TestWhatCouldNotBeWrittenIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.begin(t)
		mend := r.breakDisk(t)
		r.Update([]*corev1.Pod{pod(waits("A", "ErrImageNeverPull", `Container image "app:v2" is not present`))})
		mend()
		r.run(t, 2*time.Second)
		if r.shows("10") != was {
			t.Errorf("kubelet is shown %s", r.shows("10"))
		}
	})
}

// Nobody says it twice, and the hub's watch of pods still has those from before.
func TestARestoredStoreIsNotForgotten(t *testing.T) {
	for _, broken := range []bool{false, true} {
		t.Run(fmt.Sprintf("the disk is full: %t", broken), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.begin(t)
				before := pod(runs("B"), image(becomes), version("20"))
				r.Update([]*corev1.Pod{before})
				if broken {
					mend := r.breakDisk(t)
					r.StoreRestored()
					mend()
				} else {
					r.StoreRestored()
				}
				r.run(t, 2*time.Second)
				other := pod()
				other.UID = "other"
				r.Update([]*corev1.Pod{before, other})
				r.run(t, 2*time.Second)
				if got := r.shows("30"); got != becomes {
					t.Errorf("a pod of the restored store is shown with %s", got)
				}
				if r.open(t); r.shows("30") != becomes {
					t.Errorf("after a restart: %s", r.shows("30"))
				}
				r.Update([]*corev1.Pod{pod(runs("B"), version("15"))})
				r.Update([]*corev1.Pod{pod(runs("B"), image(becomes), version("16"))})
				if got := r.shows("30"); got != was {
					t.Errorf("the cloud has followed again, and somebody has set it back: %s", got)
				}
			})
		})
	}
}

// Time that has passed counts although it cannot be written.
func TestTimePassesWithoutADisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.begin(t)
		mend := r.breakDisk(t)
		r.run(t, limit-10*time.Second)
		mend()
		r.run(t, 11*time.Second)
		if r.state() != api.Dropped {
			t.Errorf("after the limit: %s", r.state())
		}
	})
}

func TestAHubThatIsKilledAgainAndAgainLosesLittleTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.begin(t)
		for range 9 {
			r.run(t, 14*time.Second) // of which at least ten are on disk
			r.open(t)
		}
		r.run(t, 11*time.Second)
		if r.state() != api.Dropped {
			t.Errorf("after %v in pieces: %s", 9*14*time.Second, r.state())
		}
		if got, want := r.events, []string{"u Normal OfflineUpgradeStarted", "u Warning OfflineUpgradeUndone"}; !slices.Equal(got, want) {
			t.Errorf("Events %q", got)
		}
	})
}

// A check that takes two minutes, which is longer than the probation.
func TestTheOwnersChecksDecide(t *testing.T) {
	for name, tt := range map[string]struct {
		outcomes []string // of one run after the other: "" passes, "?" cannot be run
		runs     time.Duration
		killed   time.Duration // after so long; 0: never
		state    api.UpgradeState
		calls    int
	}{
		"they run":                          {[]string{""}, 2 * time.Minute, 0, api.InProgress, 1},
		"they pass":                         {[]string{""}, 3 * time.Minute, 0, api.Done, 1},
		"one fails":                         {[]string{"check disk failed"}, 3 * time.Minute, 0, api.Dropped, 1},
		"the hub is killed while they run":  {[]string{"", ""}, 3 * time.Minute, time.Minute, api.Done, 2},
		"the hub is killed when one failed": {[]string{"check disk failed"}, time.Minute, 3 * time.Minute, api.Dropped, 1},
		"they cannot be run":                {[]string{"?", "?"}, 5 * time.Minute, 0, api.Dropped, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, calls := newRig(t), 0
				r.checks = func(ctx context.Context) (string, error) {
					outcome := tt.outcomes[calls]
					calls++
					select {
					case <-ctx.Done():
						return "check disk was killed", nil
					case <-time.After(2 * time.Minute):
					}
					if outcome == "?" {
						return "", errors.New("no systemd")
					}
					return outcome, nil
				}
				r.Update([]*corev1.Pod{pod()})
				r.begin(t)
				ready := func() { r.Update([]*corev1.Pod{pod(runs("B"))}) }
				ready()
				if tt.killed > 0 {
					r.run(t, tt.killed)
					r.open(t)
					ready()
				}
				r.run(t, tt.runs)
				if u, _ := r.State(podName); u.State != tt.state || calls != tt.calls {
					t.Errorf("%s, %s, after %d runs", u.State, u.Message, calls)
				}
			})
		})
	}
}

// The owner goes back while the checks run, and tries again.
func TestChecksOfAnEarlierAttemptDecideNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, outcomes := newRig(t), []string{"check disk failed", ""}
		r.checks = func(context.Context) (string, error) {
			outcome := outcomes[0]
			outcomes = outcomes[1:]
			time.Sleep(2 * time.Minute)
			return outcome, nil
		}
		see := func(changes ...func(*corev1.Pod)) { r.Update([]*corev1.Pod{pod(changes...)}) }
		see()
		r.begin(t)
		see(runs("B"))
		go func() {
			time.Sleep(time.Minute)
			_, _ = r.GoBack("u")
			see(runs("C"))
			_ = r.Begin(pod(runs("C")), target)
			see(runs("D"))
		}()
		r.run(t, 5*time.Minute)
		if r.state() != api.Done || len(outcomes) > 0 {
			t.Errorf("%s, and %d checks have not run", r.state(), len(outcomes))
		}
	})
}

func TestTheThirdBootUndoesBeforeAnybodyIsServed(t *testing.T) {
	r := newRig(t)
	r.begin(t)
	for i, want := range []string{becomes, becomes, was, was} {
		r.boot = "boot-" + string(rune('1'+i))
		for range 2 { // the hub is killed in between, within the boot
			r.open(t)
			if got := r.shows("10"); got != want {
				t.Fatalf("boot %d: kubelet is shown %s", i+1, got)
			}
		}
	}
	if !slices.Contains(r.events, "u Warning OfflineUpgradeUndone") {
		t.Errorf("the owner is told %q", r.events)
	}
}

func TestWatchesAreToldOnceAndBeginWithAll(t *testing.T) {
	r := newRig(t)
	_, none, changed := r.Changes(0)
	r.begin(t)
	select {
	case <-changed:
	default:
		t.Error("nobody is told that kubelet is to read something else")
	}
	pods, first, _ := r.Changes(none)
	if len(pods) != 1 || pods["u"] != podName {
		t.Errorf("changed: %v", pods)
	}
	r.Update([]*corev1.Pod{pod(runs("B"))})
	if pods, now, _ := r.Changes(first); len(pods) != 0 || now != first {
		t.Errorf("what kubelet reads is the same, and it is told of %v", pods)
	}
	r.open(t)
	if pods, first, changed = r.Changes(0); len(pods) != 1 {
		t.Errorf("a watch after a restart begins with %v", pods)
	}
	if _, err := r.GoBack("u"); err != nil {
		t.Fatal(err)
	}
	<-changed
	if pods, _, _ := r.Changes(first); len(pods) != 1 {
		t.Errorf("undone: %v", pods)
	}
	r.open(t)
	if pods, _, _ := r.Changes(0); len(pods) != 1 {
		t.Errorf("a watch after the undo begins with %v", pods)
	}
	r.Update([]*corev1.Pod{pod(runs("C"))}) // of the old image, or of the new one once more: kubelet may not have read it yet
	if pods, _, _ := r.Changes(0); len(pods) != 1 {
		t.Errorf("undone, and a watch begins with %v", pods)
	}
}

// The old container ends only after its grace, and counts as running until then.
func TestAKubeletThatHasReadTheNewImagesIsToldOfTheWayBack(t *testing.T) {
	r := newRig(t)
	r.begin(t)
	_, read, _ := r.Changes(0)
	if _, err := r.GoBack("u"); err != nil {
		t.Fatal(err)
	}
	r.Update([]*corev1.Pod{pod()})
	if pods, _, _ := r.Changes(read); len(pods) != 1 || r.state() != api.Dropped {
		t.Errorf("%s: a watch is told of %v", r.state(), pods)
	}
	r.open(t)
	if pods, _, _ := r.Changes(0); len(pods) != 1 {
		t.Errorf("a watch after a restart begins with %v", pods)
	}
}

func TestBeginAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.begin(t)
		r.Update([]*corev1.Pod{pod(runs("B"))})
		r.begin(t) // on probation: the same upgrade
		other := target
		other.Revision = "newer"
		if err := r.Begin(pod(), other); !isNotPossible(err) || !strings.Contains(err.Error(), "to revision new, which the cloud does not have yet") {
			t.Errorf("another revision: %v", err)
		}
		r.run(t, 11*time.Second)
		if revision, settled := r.Runs("u"); revision != "new" || !settled {
			t.Errorf("runs %q, %t", revision, settled)
		}
		if err := r.Check(pod(), target); !isNotPossible(err) {
			t.Errorf("the revision that it runs: %v", err)
		}
		if got, want := r.events, []string{"u Normal OfflineUpgradeStarted", "u Normal OfflineUpgradePassed"}; !slices.Equal(got, want) {
			t.Errorf("Events %q", got)
		}
		unmarked := target
		unmarked.InPlace = nil
		if err := newRig(t).Check(pod(), unmarked); !isNotPossible(err) {
			t.Errorf("not marked: %v", err)
		}
	})
}

func TestARecordEndsWithItsPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.begin(t)
		r.Update(nil)
		r.run(t, time.Hour)
		if r.state() != api.InProgress {
			t.Fatalf("nobody could delete the pod while the cloud was away, and no time passes for one that is not there: %s", r.state())
		}
		r.online = true
		r.run(t, 4*time.Minute)
		r.Update([]*corev1.Pod{pod()}) // the watch has caught up
		r.Update(nil)
		r.run(t, 4*time.Minute)
		if r.state() == "" {
			t.Fatal("the pod was there in between")
		}
		r.run(t, 2*time.Minute)
		if r.state() != "" || r.shows("10") != was {
			t.Errorf("the pod is gone: %s", r.state())
		}
		if r.open(t); r.state() != "" {
			t.Errorf("after a restart: %s", r.state())
		}
	})
}
