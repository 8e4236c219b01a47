package imagepull

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/ota/api"
)

func TestImagesArePulledOneAfterTheOther(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.wanted(t, "web-1", "v2", "app", "side")
		synctest.Wait()
		want(t, "at once", n.shows("web-1"), "Pulling: app=Pulling side=Queued")
		pass(pullTime)
		want(t, "then", n.shows("web-1"), "Pulling: app=Ready side=Pulling")
		want(t, "the pod, while pulling", n.cloud.condition("web-1"), "False PrepullPulling v2")
		pass(pullTime)
		want(t, "at last", n.shows("web-1"), "Ready: app=Ready side=Ready")
		want(t, "the pod, at last", n.cloud.condition("web-1"), "True PrepullReady v2")
		want(t, "the engine", n.engine.took(), "pull app, pull side")
		if n.engine.most != 1 {
			t.Errorf("%d images at a time", n.engine.most)
		}
		want(t, "events", fmt.Sprint(n.cloud.events), "[Normal web-1 ImagePrepulled Normal web-1 ImagePrepulled]")
	})
}

// Invariant 1: no answered request is lost. Invariant 2, this package's part: a ready image is checked, and
// not pulled.
func TestARestartLosesNothing(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.wanted(t, "web-1", "v2", "app", "side")
		pass(pullTime + pullTime/2)
		n.engine.took()
		n.restart(t)
		want(t, "after the restart", n.shows("web-1"), "Pulling: app=Ready side=Pulling")
		pass(2 * pullTime)
		want(t, "at last", n.shows("web-1"), "Ready: app=Ready side=Ready")
		want(t, "the engine", sorted(n.engine.took()), "keep app, pull side")
		n.restart(t)
		want(t, "the engine, ready before the start", sorted(n.engine.took()), "keep app, keep side")
		want(t, "ready before the start", n.shows("web-1"), "Ready: app=Ready side=Ready")
	})
}

// Invariant 3.
func TestAnImageThatManyWantIsPulledOnce(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.stop()
		n.begin(t, 3)
		n.cloud.set(oldPod("web-1", "v2", "app"), oldPod("web-2", "v2", "app:latest"), oldPod("web-3", "v2", "docker.io/library/app"))
		n.ask(t, "web-1")
		n.ask(t, "web-2")
		pass(2 * pullTime)
		want(t, "the engine", n.engine.took(), "pull app")
		n.ask(t, "web-3") // when it is there already
		synctest.Wait()
		want(t, "asked for when it is there", n.shows("web-3"), "Ready: docker.io/library/app=Ready")
		pass(2 * pullTime)
		want(t, "the engine, to see whether the tag has moved", n.engine.took(), "pull app")
		for _, pod := range []string{"web-1", "web-2", "web-3"} {
			if got := n.shows(pod); !strings.HasPrefix(got, "Ready") {
				t.Errorf("%s: %s", pod, got)
			}
		}
		n.restart(t)
		want(t, "the engine, after a restart", n.engine.took(), "keep app")
	})
}

func TestFailuresAreRetriedWithBackoff(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.engine.fail["app"] = engineapi.NewError(engineapi.Unreachable, errors.New("no route"))
		n.wanted(t, "web-1", "v2", "app")
		start := time.Now()
		var gaps []time.Duration
		for len(gaps) < 9 {
			if n.engine.took() != "" {
				gaps = append(gaps, time.Since(start))
				start = time.Now()
			}
			pass(100 * time.Millisecond)
			synctest.Wait()
		}
		for i, least := range []time.Duration{0, 10, 20, 40, 80, 160, 300, 300, 300} {
			low, high := least*time.Second*3/4, least*time.Second*5/4+2*pullTime
			if gaps[i] < low || gaps[i] > high {
				t.Errorf("attempt %d came after %v; want %v to %v", i+1, gaps[i], low, high)
			}
		}
		s, _ := n.State(web1)
		if i := s.Images[0]; i.Attempts != 9 || i.Reason != "RegistryUnreachable" || i.LastError != "no route" {
			t.Errorf("got %+v", i)
		}
		want(t, "the pod", n.cloud.condition("web-1"), "False PrepullRegistryUnreachable v2")
		want(t, "events", fmt.Sprint(n.cloud.events), "[Warning web-1 ImagePrepullFailed]")

		pass(2 * pullTime)
		n.engine.took()
		n.ask(t, "web-1")
		synctest.Wait()
		want(t, "asked for again", n.engine.took(), "pull app")
		n.engine.set(func() { delete(n.engine.fail, "app") })
		pass(2 * pullTime)
		want(t, "when it is mended", n.shows("web-1"), "Ready: app=Ready")
		want(t, "the pod, then", n.cloud.condition("web-1"), "True PrepullReady v2")
	})
}

func TestARegistryIsAskedAgainWhenTheCloudIsBack(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.engine.fail["app"] = engineapi.NewError(engineapi.Unreachable, errors.New("no route"))
		n.wanted(t, "web-1", "v2", "app")
		pass(time.Hour)
		for n.shows("web-1") != "Failed: app=Failed" {
			pass(pullTime)
		}
		n.engine.took()
		n.CloudReturned()
		pass(returnJitter)
		want(t, "the engine", n.engine.took(), "pull app")
		pass(30*time.Second + pullTime)
		want(t, "the engine, whose backoff begins anew", n.engine.took(), "pull app")
	})
}

func TestOneImageThatFailsDoesNotHoldUpOthers(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.engine.fail["app"] = engineapi.NewError(engineapi.NotFound, errors.New("no such tag"))
		n.wanted(t, "web-1", "v2", "app", "side")
		pass(2 * pullTime)
		want(t, "state", n.shows("web-1"), "Failed: app=Failed side=Ready")
	})
}

func TestARegistryThatAsksForTimeGetsIt(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		busy := engineapi.NewError(engineapi.RegistryBusy, errors.New("too many requests"))
		busy.RetryAfter = 10 * time.Minute
		n.engine.fail["app"] = busy
		n.wanted(t, "web-1", "v2", "app")
		pass(10*time.Minute - 2*pullTime)
		n.ask(t, "web-1") // which does not override what the registry asks for
		pass(2 * pullTime)
		want(t, "in ten minutes", n.engine.took(), "pull app")
		pass(5*time.Minute/2 + 2*pullTime) // with all of the jitter
		want(t, "then", n.engine.took(), "pull app")
	})
}

func TestWhatCannotHelpIsNotTriedAgain(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.engine.fail["A:B"] = engineapi.NewError(engineapi.InvalidImageName, errors.New("no name"))
		n.wanted(t, "web-1", "v2", "A:B")
		pass(time.Hour)
		want(t, "the engine", n.engine.took(), "pull A:B")
		s, _ := n.State(web1)
		if s.State != api.Failed || s.Images[0].NextRetry != nil {
			t.Errorf("got %+v", s)
		}
	})
}

func TestAnotherTargetEndsWhatIsNoLongerWanted(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.wanted(t, "web-1", "v2", "app:2", "side")
		pass(pullTime / 2)
		n.cloud.set(oldPod("web-1", "v3", "app:3", "side"))
		synctest.Wait()
		want(t, "state", n.shows("web-1"), "none")
		want(t, "the engine", n.engine.took(), "pull app:2")
		pass(gracePeriod + time.Second)
		want(t, "the engine, when the next target does not need it either", n.engine.took(), "release app:2")
		want(t, "the pod", n.cloud.condition("web-1"), "nothing")
		n.ask(t, "web-1")
		pass(2 * pullTime)
		want(t, "asked for again", n.shows("web-1"), "Ready: app:3=Ready side=Ready")

		pod := oldPod("web-1", "v4", "app:4", "side")
		pod.Status = n.cloud.pods["web-1"].Status
		n.cloud.set(pod)
		pass(time.Second)
		want(t, "the pod, ready for a revision that is not the target", n.cloud.condition("web-1"), "True PrepullReady v3")
	})
}

func TestAPullThatIsUnderWayGoesOnForOthers(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.cloud.set(oldPod("web-1", "v2", "app"), oldPod("web-2", "v2", "app"))
		n.ask(t, "web-1")
		n.ask(t, "web-2")
		pass(pullTime / 2)
		if was, err := n.Cancel(web1); !was || err != nil {
			t.Fatal(was, err)
		}
		pass(pullTime)
		want(t, "the other", n.shows("web-2"), "Ready: app=Ready")
		want(t, "the engine", n.engine.took(), "pull app")
	})
}

func TestCancel(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.cloud.set(oldPod("web-1", "v2", "app"))
		if was, err := n.Cancel(web1); was || err != nil {
			t.Errorf("nothing to cancel: %t, %v", was, err)
		}
		n.ask(t, "web-1")
		pass(pullTime / 2)
		want(t, "the pod, before", n.cloud.condition("web-1"), "False PrepullPulling v2")
		if was, err := n.Cancel(web1); !was || err != nil {
			t.Errorf("got %t, %v", was, err)
		}
		pass(time.Second)
		want(t, "state", n.shows("web-1"), "none")
		want(t, "the pod, which may be upgraded without", n.cloud.condition("web-1"), "nothing")
		want(t, "the engine", n.engine.took(), "pull app, release app")
		n.restart(t)
		want(t, "after a restart", n.shows("web-1"), "none")
	})
}

func TestOnlyWhatARolloutAsksForIsSpread(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.stop()
		n.begin(t, 2)
		wanted := target("v2", "app")
		wanted.Prepull = &metav1.Time{Time: time.Now()}
		n.cloud.set(podWith("web-1", wanted), oldPod("web-2", "v2", "side"))
		n.ask(t, "web-2")
		synctest.Wait()
		want(t, "an owner's request", n.shows("web-2"), "Pulling: side=Pulling")
		want(t, "a rollout's", n.shows("web-1"), "Queued: app=Queued")
	})
}

func TestWhatARolloutAsksForIsPulledUnasked(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		wanted := target("v2", "app")
		wanted.Prepull = &metav1.Time{Time: time.Now()}
		deleting := podWith("web-0", wanted)
		deleting.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		n.cloud.set(podWith("web-1", wanted), deleting)
		pass(10*time.Second + 2*pullTime)
		want(t, "state", n.shows("web-1"), "Ready: app=Ready")
		want(t, "one that is being deleted", n.shows("web-0"), "none")
		want(t, "the pod", n.cloud.condition("web-1"), "True PrepullReady v2")

		if was, err := n.Cancel(web1); !was || err != nil {
			t.Fatal(was, err)
		}
		synctest.Wait()
		want(t, "the engine, when it is cancelled", n.engine.took(), "pull app, release app")
		n.restart(t)
		pass(time.Hour)
		want(t, "cancelled, also after a restart", n.shows("web-1"), "none")
		want(t, "the engine", n.engine.took(), "")
		n.ask(t, "web-1")
		pass(2 * pullTime)
		want(t, "asked for by the owner", n.shows("web-1"), "Ready: app=Ready")

		wanted.Revision, wanted.Containers[0].Image = "v3", "app:3"
		n.cloud.set(podWith("web-1", wanted))
		pass(10*time.Second + 2*pullTime)
		want(t, "the next target", n.shows("web-1"), "Ready: app:3=Ready")
	})
}
