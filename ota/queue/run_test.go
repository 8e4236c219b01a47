package queue

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota"
	"github.com/edgehub-io/edgehub/ota/api"
)

// The hub is killed at each point of an attempt. Whatever it finds when it starts again, the pod was
// deleted once, and the upgrade is Done.
func TestACrashRepeatsTheAttempt(t *testing.T) {
	for name, executed := range map[string]bool{"before the deletion is executed": false, "after the deletion was executed": true} {
		t.Run(name, func(t *testing.T) {
			in(t, func(_ *testing.T, r *rig) {
				pod := r.pod("web")
				r.change(func() { r.away = true })
				r.add(pod, ota.When{})
				r.crash(pod, executed)
				r.start()
				r.expect(pod, api.InProgress, "")
				r.returns()
				r.wait(spread)
				r.expect(pod, api.Done, "")
				r.deleted(pod)
			})
		})
	}
}

// The hub is killed after the deletion was sent, and the rollout was undone before it was executed.
func TestACrashBeforeTheRolloutIsUndone(t *testing.T) {
	in(t, func(_ *testing.T, r *rig) {
		pod := r.pod("web")
		r.change(func() { r.away = true })
		r.add(pod, ota.When{})
		r.crash(pod, false)
		r.start()
		r.change(func() { pod.Status.Conditions[0].Status = corev1.ConditionFalse })
		r.returns()
		r.wait(spread)
		r.expect(pod, api.Dropped, "needs no upgrade")
		r.deleted()
	})
}

func TestALostAnswerIsNoSecondDeletion(t *testing.T) {
	in(t, func(_ *testing.T, r *rig) {
		pod := r.pod("web")
		r.change(func() { r.silent = true })
		r.add(pod, ota.When{})
		r.wait(spread)
		r.expect(pod, api.InProgress, "sending the request again is safe")
		if _, err := r.Cancel(nameOf(pod)); !errors.Is(err, ota.ErrBegun) {
			t.Errorf("got %v, want %v: the pod may be gone", err, ota.ErrBegun)
		}
		if _, err := r.Add(pod, "newer", ota.When{}); !errors.Is(err, ota.ErrBegun) {
			t.Errorf("got %v, want %v: the pod may be gone", err, ota.ErrBegun)
		}
		successor := pod.DeepCopy()
		successor.UID = "uid-successor"
		r.change(func() { r.pods[nameOf(pod)] = successor })
		r.wait(10 * time.Second)
		r.expect(pod, api.Done, "")
		r.deleted(pod)
	})
}

// Between the lost answer and the moment at which the pod is seen to be gone, the cloud cannot be asked:
// that does not mean that nothing has begun.
func TestALostAnswerStaysInProgressUntilItIsKnown(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*rig, *corev1.Pod)
		says   string
	}{
		"the pod cannot be looked up": {func(r *rig, _ *corev1.Pod) { r.broken = true }, "look up pod default/web"},
		"the pod is in the cache, and the deletion is not sent": {func(r *rig, pod *corev1.Pod) {
			r.pods[nameOf(pod)], r.refuse = pod, apierrors.NewServiceUnavailable("edgehub: the cloud cannot be reached: connection refused")
		}, "delete pod default/web"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				pod := r.pod("web")
				r.change(func() { r.silent = true })
				r.add(pod, ota.When{})
				r.wait(spread)
				r.change(func() { r.silent = false; tt.change(r, pod) })
				r.wait(time.Hour)
				r.expect(pod, api.InProgress, tt.says)
				r.change(func() { r.broken, r.refuse = false, nil; delete(r.pods, nameOf(pod)) })
				r.wait(2 * longestRetry)
				r.expect(pod, api.Done, "")
				r.deleted(pod)
				if len(r.events) != 0 {
					t.Errorf("got Events %q, want none", r.events)
				}
			})
		})
	}
}

func TestWhatDoesNotApplyAnyMoreIsDropped(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*rig, *corev1.Pod)
		says   string
		due    bool // that is found out when it is due
	}{
		"the pod is gone": {func(r *rig, pod *corev1.Pod) { delete(r.pods, nameOf(pod)) }, "there is no pod default/web", false},
		"the pod was replaced": {func(r *rig, pod *corev1.Pod) {
			r.pods[nameOf(pod)].UID = "uid-other"
		}, "was replaced by one with UID uid-other", false},
		"the pod is being deleted": {func(_ *rig, pod *corev1.Pod) {
			pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		}, "is being deleted already", false},
		"the rollout was undone":          {func(_ *rig, pod *corev1.Pod) { pod.Status.Conditions[0].Status = corev1.ConditionFalse }, "needs no upgrade", false},
		"the pod is not managed any more": {func(_ *rig, pod *corev1.Pod) { pod.Status.Conditions = nil }, "has no condition PodNeedUpgrade", false},
		"the target moved on": {func(_ *rig, pod *corev1.Pod) {
			pod.Status.Conditions[0].Message = api.Message("newer")
		}, `to revision "newer" by now, and was requested to "new"`, false},
		"the DaemonSet was deleted, and its pods with it":       {func(r *rig, pod *corev1.Pod) { delete(r.pods, nameOf(pod)) }, "there is no pod default/web", false},
		"the DaemonSet was deleted, and its pods were orphaned": {func(_ *rig, pod *corev1.Pod) { pod.OwnerReferences = nil }, "no controlling owner", true},
		"the DaemonSet was recreated, and adopted the pod": {func(_ *rig, pod *corev1.Pod) {
			pod.OwnerReferences[0].UID = "uid-recreated"
			pod.Status.Conditions[0].Message = api.Message("recreated")
		}, `to revision "recreated" by now`, false},
		"the DaemonSet was recreated, and its pod has the same name": {func(r *rig, pod *corev1.Pod) {
			pod.OwnerReferences[0].UID = "uid-recreated"
			r.pods[nameOf(pod)].UID = "uid-recreated-pod"
		}, "was replaced by one with UID uid-recreated-pod", false},
	} {
		for when, w := range map[string]ota.When{"due": {}, "scheduled for later": {At: time.Date(2000, 1, 1, 20, 0, 0, 0, time.UTC)}} {
			t.Run(name+", "+when, func(t *testing.T) {
				in(t, func(_ *testing.T, r *rig) {
					pod := r.pod("web")
					r.change(func() { r.away = true })
					r.add(pod, w)
					r.wait(time.Minute)
					r.change(func() { tt.change(r, pod) })
					if len(r.events) != 0 {
						t.Errorf("dropped without the cloud: %q", r.events)
					}
					r.returns()
					r.wait(spread)
					if tt.due {
						r.wait(20 * time.Hour)
					}
					u := r.expect(pod, api.Dropped, tt.says)
					if u.Ended == nil {
						t.Errorf("got %+v, want when it ended", u)
					}
					r.deleted()
					r.wait(time.Hour)
					if len(r.events) != 1 || !strings.Contains(r.events[0], "default/web uid-web UpgradeDropped") || !strings.Contains(r.events[0], tt.says) {
						t.Errorf("got Events %q, want one that says %q", r.events, tt.says)
					}
				})
			})
		}
	}
}

// The images are not there when the window opens: it waits for them, and for the next window.
func TestAnUpgradeWaitsForItsImages(t *testing.T) {
	for name, tt := range map[string]struct {
		when  ota.When
		state api.UpgradeState // after three hours
		ready time.Duration    // after midnight
		want  time.Duration    // after midnight: when it is carried out at the latest
	}{
		"as soon as it can be":   {ota.When{}, api.WaitingForCloud, 4 * time.Hour, 4*time.Hour + spread},
		"in the same window":     {ota.When{Window: "02:00-05:00", TimeZone: "UTC"}, api.WaitingForCloud, 4 * time.Hour, 4*time.Hour + spread},
		"in the next window":     {ota.When{Window: "02:00-02:30", TimeZone: "UTC"}, api.Scheduled, 4 * time.Hour, 26*time.Hour + spread},
		"in the window after it": {ota.When{Window: "02:00-02:30", TimeZone: "UTC"}, api.Scheduled, 28 * time.Hour, 50*time.Hour + spread},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(_ *testing.T, r *rig) {
				pod := r.pod("web")
				pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: api.ImageCondition, Status: corev1.ConditionFalse, Message: api.Message("new")})
				r.add(pod, tt.when)
				r.wait(3 * time.Hour)
				r.expect(pod, tt.state, "are not on this node yet")
				r.wait(tt.ready - 3*time.Hour)
				r.deleted()
				r.change(func() { pod.Status.Conditions[1].Status = corev1.ConditionTrue })
				if tt.want > tt.ready+time.Hour {
					r.wait(tt.want - tt.ready - time.Hour)
					r.deleted()
					tt.ready = tt.want - time.Hour
				}
				r.wait(tt.want - tt.ready)
				r.deleted(pod)
			})
		})
	}
}

// What the apiserver answers to the deletion, and whether it can be cancelled then: TestVerdictsOfAttempts of package ota has
// more answers.
func TestTheCloudRefusesForTheMoment(t *testing.T) {
	for name, tt := range map[string]struct {
		err   *apierrors.StatusError
		state api.UpgradeState
		says  string
	}{
		"429": {apierrors.NewTooManyRequests("slow down", 1), api.WaitingForCloud, "slow down"},
		"503": {apierrors.NewServiceUnavailable("shutting down"), api.InProgress, "shutting down"},
		"504": {apierrors.NewTimeoutError("too slow", 1), api.InProgress, "too slow"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(_ *testing.T, r *rig) {
				pod := r.pod("web")
				r.change(func() { r.refuse = tt.err })
				r.add(pod, ota.When{})
				r.wait(10 * time.Minute)
				r.expect(pod, tt.state, tt.says)
				r.deleted()
				r.change(func() { r.refuse = nil })
				r.wait(longestRetry + longestRetry/4)
				r.expect(pod, api.Done, "")
				r.deleted(pod)
			})
		})
	}
}

// The cloud goes away between the checks and the deletion: nothing has begun, so it can be cancelled.
func TestWhatWasNotSentHasNotBegun(t *testing.T) {
	in(t, func(_ *testing.T, r *rig) {
		pod := r.pod("web")
		r.stop()
		r.mu.Lock()
		r.away = true
		r.mu.Unlock()
		r.add(pod, ota.When{})
		r.attempt(r.t.Context(), r.get(nameOf(pod)), r.api.Upgrade)
		r.expect(pod, api.WaitingForCloud, "")
		if was, err := r.Cancel(nameOf(pod)); !was || err != nil {
			t.Errorf("got %v, %v", was, err)
		}
	})
}

// Many upgrades wait. The cloud returns, goes away and returns: each is carried out once, and one
// at a time.
func TestManyAcrossReconnects(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		const many = 20
		r.change(func() { r.away = true })
		for i := range many {
			r.add(r.pod(fmt.Sprintf("web-%d", i)), ota.When{})
		}
		began := time.Now()
		for len(r.deletes) < many && time.Since(began) < time.Hour {
			r.returns()
			r.wait(spread / 2)
			r.change(func() { r.away = true })
			r.wait(time.Second)
		}
		seen := map[any]int{}
		for _, uid := range r.deletes {
			seen[uid]++
		}
		if len(seen) != many || len(r.deletes) != many {
			t.Errorf("%d deletions of %d pods, want each of %d once", len(r.deletes), len(seen), many)
		}
		if r.most != 1 {
			t.Errorf("%d requests at once, want 1", r.most)
		}
		if took := time.Since(began); took < many*pace || took > 5*time.Minute {
			t.Errorf("it took %s", took) // of the bubble's time
		}
	})
}

func TestWhatHasEndedIsForgotten(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		const tooMany = 20
		r.stop()
		for i := range keepAtMost + tooMany {
			r.file(fmt.Sprintf("web-%d", i), fmt.Sprintf(`{"uid":"%d","revision":"new","state":"Done","ended":%q}`, i, time.Now().Add(time.Duration(i)*time.Second).Format(time.RFC3339)))
		}
		r.start()
		r.wait(time.Minute)
		if n := len(r.States()); n != keepAtMost {
			t.Errorf("%d are kept, want %d", n, keepAtMost)
		}
		for _, u := range r.States() {
			if i, err := strconv.Atoi(u.UID); err != nil || i < tooMany {
				t.Errorf("%s, one of the first that ended, is kept", u.UID)
			}
		}
		r.wait(keepFor + idle)
		if n := len(r.States()); n != 0 {
			t.Errorf("%d are kept after %s", n, keepFor)
		}
		if files, _ := os.ReadDir(r.dir); len(files) != 0 {
			t.Errorf("%d files are left", len(files))
		}
	})
}
