package queue

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/edgehub-io/edgehub/ota"
	"github.com/edgehub-io/edgehub/ota/api"
)

// in runs f in a bubble. Its time begins at midnight UTC, on 1 January 2000.
func in(t *testing.T, f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		synctest.Wait()
		f(t, r)
	})
}

func TestAnUpgradeWaitsForTheCloud(t *testing.T) {
	in(t, func(_ *testing.T, r *rig) {
		pod := r.pod("web")
		r.change(func() { r.away = true })
		r.add(pod, ota.When{})
		r.wait(time.Hour)
		r.expect(pod, api.WaitingForCloud, "the cloud cannot be reached")
		r.deleted()

		r.returns()
		r.wait(spread)
		if u := r.expect(pod, api.Done, ""); u.Ended == nil || u.Revision != "new" || u.UID != "uid-web" {
			t.Errorf("got %+v", u)
		}
		r.wait(time.Hour)
		r.deleted(pod)

		r.stop()
		r.pod("web").UID = "uid-successor"
		r.start()
		r.wait(48 * time.Hour)
		r.expect(pod, api.Done, "")
		r.deleted(pod)
	})
}

func TestAnUpgradeSurvivesARestart(t *testing.T) {
	in(t, func(_ *testing.T, r *rig) {
		pod := r.pod("web")
		r.change(func() { r.away = true })
		r.add(pod, ota.When{Window: "02:00-05:00", TimeZone: "UTC", Force: true})
		r.stop()
		r.start()
		u := r.expect(pod, api.Scheduled, "")
		if u.Window != "02:00-05:00" || u.TimeZone != "UTC" || !u.Next.Equal(time.Date(2000, 1, 1, 2, 0, 0, 0, time.UTC)) {
			t.Errorf("got %+v", u)
		}
		if !r.get(nameOf(pod)).Force {
			t.Error("it does not know any more that it is in spite of a hold")
		}
	})
}

func TestAnUpgradeWaitsForTheEndOfAHold(t *testing.T) {
	in(t, func(_ *testing.T, r *rig) {
		held, forced := r.pod("held"), r.pod("forced")
		r.change(func() {
			r.holds[nameOf(held)] = api.Hold{Until: time.Now().Add(2 * time.Hour)}
			r.holds[nameOf(forced)] = api.Hold{Until: time.Now().Add(2 * time.Hour)}
		})
		r.add(held, ota.When{})
		r.add(forced, ota.When{Force: true})
		r.wait(time.Hour)
		r.expect(held, api.Held, "on hold until 2000-01-01T02:00:00Z")
		if err := r.begin(r.get(nameOf(held))); !errors.Is(err, errNotNow) {
			t.Errorf("an attempt that was on its way: got %v, want %v", err, errNotNow)
		}
		r.deleted(forced)
		r.wait(time.Hour + poll)
		r.deleted(forced, held)
	})
}

func TestCancelAtEachState(t *testing.T) {
	for name, tt := range map[string]struct {
		when   ota.When
		before func(*rig, *corev1.Pod) // from when it waits for the cloud
		state  api.UpgradeState
		was    bool
		err    error
	}{
		"WaitingForCloud": {state: api.WaitingForCloud, was: true},
		"Scheduled":       {when: ota.When{Window: "02:00-05:00", TimeZone: "UTC"}, state: api.Scheduled, was: true},
		"Held": {before: func(r *rig, pod *corev1.Pod) {
			r.change(func() { r.holds[nameOf(pod)] = api.Hold{Until: time.Now().Add(time.Hour)} })
		}, state: api.Held, was: true},
		"waiting for its images": {before: func(r *rig, pod *corev1.Pod) {
			r.change(func() {
				pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: api.ImageCondition, Status: corev1.ConditionFalse, Message: api.Message("new")})
			})
			r.returns()
			r.wait(spread)
		}, state: api.WaitingForCloud, was: true},
		"InProgress": {before: func(r *rig, pod *corev1.Pod) {
			r.crash(pod, false)
			r.start()
		}, state: api.InProgress, err: ota.ErrBegun},
		"Done": {before: func(r *rig, _ *corev1.Pod) {
			r.returns()
			r.wait(spread)
		}, state: api.Done},
		"Dropped": {before: func(r *rig, pod *corev1.Pod) {
			r.change(func() { delete(r.pods, nameOf(pod)) })
			r.returns()
			r.wait(spread)
		}, state: api.Dropped},
		"Withdrawn": {before: func(r *rig, pod *corev1.Pod) {
			if _, err := r.Cancel(nameOf(pod)); err != nil {
				r.t.Fatal(err)
			}
		}, state: api.Withdrawn},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				pod := r.pod("web")
				r.change(func() { r.away = true })
				r.add(pod, tt.when)
				if tt.before != nil {
					tt.before(r, pod)
				}
				r.expect(pod, tt.state, "")
				it := r.get(nameOf(pod))
				if was, err := r.Cancel(nameOf(pod)); was != tt.was || !errors.Is(err, tt.err) {
					t.Errorf("got %v, %v, want %v, %v", was, err, tt.was, tt.err)
				}
				if !tt.was {
					r.expect(pod, tt.state, "")
					return
				}
				if err := r.begin(it); !errors.Is(err, errNotNow) {
					t.Errorf("an attempt that was on its way: got %v, want %v", err, errNotNow)
				}
				r.stop()
				r.start()
				r.returns()
				r.wait(24 * time.Hour)
				r.expect(pod, api.Withdrawn, "")
				r.deleted()
			})
		})
	}
	in(t, func(t *testing.T, r *rig) {
		if was, err := r.Cancel(nameOf(r.pod("web"))); was || err != nil {
			t.Errorf("got %v, %v: there was none", was, err)
		}
	})
}

func TestTheSameRequestIsNotANewOne(t *testing.T) {
	in(t, func(_ *testing.T, r *rig) {
		pod := r.pod("web")
		r.change(func() { r.away = true })
		first := r.add(pod, ota.When{})
		r.wait(time.Minute)
		if again := r.add(pod, ota.When{}); !again.Requested.Equal(first.Requested) {
			t.Errorf("requested at %s and then at %s", first.Requested, again.Requested)
		}
		if other := r.add(pod, ota.When{Window: "02:00-05:00"}); other.Requested.Equal(first.Requested) || other.Window == "" {
			t.Errorf("got %+v, want the new request", other)
		}
		if n := len(r.States()); n != 1 {
			t.Errorf("a pod has %d upgrades, want its last", n)
		}
	})
}

// Started with --queue-upgrades=false, the hub carries out nothing. What has begun ends, what does not
// apply any more is dropped, and what waits can be seen and cancelled.
func TestAQueueThatIsOff(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		waits, begun, executed, gone := r.pod("waits"), r.pod("begun"), r.pod("executed"), r.pod("gone")
		r.change(func() { r.away = true })
		for _, pod := range []*corev1.Pod{waits, begun, executed, gone} {
			r.add(pod, ota.When{})
		}
		r.crash(begun, false)
		r.crash(executed, true)
		r.off = true
		r.start()
		r.change(func() { delete(r.pods, nameOf(gone)) })
		r.returns()
		r.wait(time.Hour)
		r.expect(waits, api.WaitingForCloud, "--queue-upgrades=false")
		r.expect(begun, api.WaitingForCloud, "--queue-upgrades=false")
		r.expect(executed, api.Done, "")
		r.expect(gone, api.Dropped, "there is no pod")
		r.deleted(executed)
		if report := r.Report(waits); report.Annotations[api.WaitingAnnotation] != "" {
			t.Errorf("the cloud is shown an upgrade that is not carried out: %v", report)
		}
		if was, err := r.Cancel(nameOf(begun)); !was || err != nil {
			t.Errorf("got %v, %v", was, err)
		}
		r.stop()
		r.off = false
		r.start()
		r.wait(spread)
		r.deleted(executed, waits)
	})
}

// The cloud is shown what waits, and that it does not wait any more.
func TestTheCloudIsShownWhatWaits(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		expect := func(pod *corev1.Pod, want string) {
			t.Helper()
			if got := r.Report(pod).Annotations[api.WaitingAnnotation]; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		night, at, other := r.pod("night"), r.pod("at"), r.pod("other")
		r.add(night, ota.When{Window: "02:00-05:00", TimeZone: "UTC"})
		r.add(at, ota.When{At: time.Date(2000, 1, 1, 4, 0, 0, 0, time.UTC)})
		expect(night, `{"revision":"new","requested":"2000-01-01T00:00:00Z","window":"02:00-05:00","tz":"UTC"}`)
		expect(at, `{"revision":"new","requested":"2000-01-01T00:00:00Z","at":"2000-01-01T04:00:00Z"}`)
		expect(other, "")
		expect(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "night", UID: "uid-of-its-successor"}}, "")
		changes := r.changes
		if _, err := r.Cancel(nameOf(at)); err != nil {
			t.Fatal(err)
		}
		expect(at, "")
		r.wait(2*time.Hour + spread)
		expect(night, "")
		r.deleted(night)
		if r.changes != changes+2 {
			t.Errorf("%d changes were notified, want those of the cancellation and the end", r.changes-changes)
		}
	})
}

func TestMetrics(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		registry := prometheus.NewRegistry()
		r.Registerer = registry
		if err := r.register(); err != nil {
			t.Fatal(err)
		}
		r.change(func() { r.away = true })
		r.add(r.pod("a"), ota.When{})
		r.add(r.pod("b"), ota.When{})
		r.add(r.pod("c"), ota.When{Window: "02:00-05:00", TimeZone: "UTC"})
		err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP edgehub_ota_queued_upgrades Upgrades that wait, are in progress, or have ended in the last week, by state.
# TYPE edgehub_ota_queued_upgrades gauge
edgehub_ota_queued_upgrades{state="Done"} 0
edgehub_ota_queued_upgrades{state="Dropped"} 0
edgehub_ota_queued_upgrades{state="Held"} 0
edgehub_ota_queued_upgrades{state="InProgress"} 0
edgehub_ota_queued_upgrades{state="Scheduled"} 1
edgehub_ota_queued_upgrades{state="WaitingForCloud"} 2
edgehub_ota_queued_upgrades{state="Withdrawn"} 0
`))
		if err != nil {
			t.Error(err)
		}
	})
}

// A file that a newer or older hub has left must not keep the hub from starting.
func TestFilesThatDoNotFit(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.stop()
		r.file("zone", `{"uid":"u","revision":"new","state":"WaitingForCloud","window":"02:00-05:00","timeZone":"Mars/Base"}`)
		r.file("ended", `{"uid":"u","revision":"new","state":"Done"}`)
		r.file("empty", `{}`)
		r.start()
		r.expect(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "zone"}}, api.Dropped, "no time zone that this node knows")
		r.wait(time.Minute)
		r.deleted()
		if all := fmt.Sprint(r.events); len(r.events) != 2 || !strings.Contains(all, "no time zone that this node knows") || !strings.Contains(all, "there is no pod default/empty") {
			t.Errorf("got Events %q, want one for each that was dropped", r.events)
		}
	})
}

// The disk is full, as far as the queue sees it.
func TestNothingBeginsThatCannotBeWrittenDown(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		pod := r.pod("web")
		r.change(func() { r.away = true })
		r.add(pod, ota.When{})
		if err := errors.Join(os.RemoveAll(r.dir), os.WriteFile(r.dir, nil, 0o600)); err != nil { // in the folder's place
			t.Fatal(err)
		}
		if _, err := r.Add(r.pod("other"), "new", ota.When{}); err == nil {
			t.Error("a request was accepted, and not written down")
		}
		if was, err := r.Cancel(nameOf(pod)); was || err == nil {
			t.Errorf("a cancellation was accepted, and not written down: %v, %v", was, err)
		}
		r.returns()
		r.wait(time.Minute)
		r.deleted()
		r.expect(pod, api.WaitingForCloud, "could not be written down")
		if err := errors.Join(os.Remove(r.dir), os.Mkdir(r.dir, 0o700)); err != nil {
			t.Fatal(err)
		}
		r.wait(longestRetry)
		r.deleted(pod)
	})
}
