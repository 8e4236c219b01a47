package imagepull

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

var web1 = types.NamespacedName{Namespace: "ns", Name: "web-1"}

// A pull may be cancelled at any moment, also while it begins. The test runs in real time, because it is
// about the order in which goroutines are scheduled.
func TestCancellingAtAnyMoment(t *testing.T) {
	n := &node{engine: newScripted(), cloud: newSky(), dir: t.TempDir()}
	p, err := New(n.options(n.engine, make(chan struct{}, 1), 4))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { p.Run(ctx) })
	all.Go(func() { n.cloud.follow(ctx, p.PodsChanged) })
	for i := range 4 {
		name := fmt.Sprintf("web-%d", i)
		pod := oldPod(name, "v2", "app", "side", name)
		n.cloud.set(pod)
		all.Go(func() {
			for range 50 {
				_, err := p.Cancel(types.NamespacedName{Namespace: "ns", Name: name})
				if err := errors.Join(err, p.Request(pod, target("v2", "app", "side", name), false)); err != nil {
					t.Error(err)
					break
				}
			}
			if i == 3 {
				cancel()
			}
		})
	}
	all.Wait()
}

// The watch may show an older state of the pod than the request: after a reconnect, or from the cache after
// a restart during an outage.
func TestARequestOutlivesAnOlderStateOfThePod(t *testing.T) {
	at := func(version string, pod *corev1.Pod) *corev1.Pod {
		pod.ResourceVersion = version
		return pod
	}
	onNode(t, func(t *testing.T, n *node) {
		before := at("9", oldPod("web-1", "v2", "app"))
		before.Annotations = nil
		n.cloud.set(before)
		if err := n.Request(at("10", oldPod("web-1", "v2", "app")), target("v2", "app"), false); err != nil {
			t.Fatal(err)
		}
		n.reconcile()
		pass(2 * pullTime)
		want(t, "after an older state", n.shows("web-1"), "Ready: app=Ready")
		n.restart(t)
		want(t, "and after a restart", n.shows("web-1"), "Ready: app=Ready")

		unreadable := at("11", oldPod("web-1", "v2", "app"))
		unreadable.Annotations = map[string]string{"apps.openyurt.io/upgrade-target": "{"}
		n.cloud.set(unreadable)
		pass(time.Second)
		want(t, "with a target that cannot be read", n.shows("web-1"), "Ready: app=Ready")

		later := at("12", oldPod("web-1", "v2", "app"))
		later.Annotations = nil
		n.cloud.set(later)
		pass(time.Second)
		want(t, "after a newer state", n.shows("web-1"), "none")
	})
}

func TestWhatTheNextTargetNeedsIsNotLetGo(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		wanted := target("v2", "app:2", "side")
		wanted.Prepull = &metav1.Time{Time: time.Now()}
		n.cloud.set(podWith("web-1", wanted))
		pass(20*time.Second + 3*pullTime)
		n.engine.took()
		wanted.Revision, wanted.Containers[0].Image = "v3", "app:3"
		n.cloud.set(podWith("web-1", wanted))
		pass(20*time.Second + 3*pullTime)
		want(t, "state", n.shows("web-1"), "Ready: app:3=Ready side=Ready")
		want(t, "the engine", n.engine.took(), "pull app:3")
		pass(gracePeriod)
		if got := n.engine.took(); !strings.Contains(got, "release app:2") || strings.Contains(got, "release side") {
			t.Errorf("the engine, later: %s", got)
		}
	})
}

func TestAPullThatTakesLongHoldsUpNoCheck(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.cloud.set(oldPod("web-1", "v2", "app"), oldPod("web-2", "v2", "large"))
		n.ask(t, "web-1")
		pass(2 * pullTime)
		n.ask(t, "web-2")
		synctest.Wait()
		n.engine.took()
		n.engine.remove <- imageName("app")
		synctest.Wait()
		want(t, "the engine", n.engine.took(), "keep app")
		want(t, "the pull", n.shows("web-2"), "Pulling: large=Pulling")
	})
}

// unkept is an engine that can never retain an image again.
type unkept struct{ *scripted }

func (unkept) Keep(context.Context, engineapi.Image) error {
	return engineapi.NewError(engineapi.NoSpace, errors.New("it cannot be unpacked"))
}

func TestAnImageThatCannotBeKeptIsNotCalledReady(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.wanted(t, "web-1", "v2", "app")
		pass(2 * pullTime)
		n.engine.set(func() { n.engine.fail["app"] = engineapi.NewError(engineapi.NoSpace, errors.New("no room")) })
		n.other = unkept{n.engine}
		n.restart(t)
		pass(2 * pullTime)
		want(t, "the pod", n.cloud.condition("web-1"), "False PrepullInsufficientSpace v2")
	})
}

func TestWithoutContainerdNothingIsAskedOfTheCloud(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.engine.setAbsent(true)
		n.wanted(t, "web-1", "v2", "app")
		pass(time.Hour)
		want(t, "the pod", n.cloud.condition("web-1"), "False PrepullContainerdUnavailable v2")
		if n.cloud.read > 0 {
			t.Errorf("%d secrets were read", n.cloud.read)
		}
		n.engine.setAbsent(false)
		pass(sweepRetry + 2*pullTime)
		want(t, "as soon as it is there", n.shows("web-1"), "Ready: app=Ready")
	})
}

func TestOnlyADaemonSetsPodHasImagesPulledUnasked(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		wanted := target("v2", "app")
		wanted.Prepull = &metav1.Time{Time: time.Now()}
		pod := podWith("bare", wanted)
		pod.OwnerReferences = nil
		n.cloud.set(pod)
		pass(time.Minute)
		want(t, "a pod that nobody owns", n.shows("bare"), "none")
	})
}

func TestAnUpgradeIsNotRefusedForEver(t *testing.T) {
	prepare := func(t *testing.T, n *node) {
		n.wanted(t, "web-1", "v2", "app:2")
		pass(pullTime / 2)
		pod := oldPod("web-1", "v3", "app:3")
		n.cloud.mu.Lock()
		pod.Status = n.cloud.pods["web-1"].Status
		n.cloud.mu.Unlock()
		n.cloud.set(pod)
		pass(time.Second)
		want(t, "the pod, of another target meanwhile", n.cloud.condition("web-1"), "False PrepullTargetChanged v3")
	}
	t.Run("cancelled", func(t *testing.T) {
		onNode(t, func(t *testing.T, n *node) {
			prepare(t, n)
			if was, err := n.Cancel(web1); !was || err != nil {
				t.Errorf("got %t, %v", was, err)
			}
			pass(time.Second)
			want(t, "the pod", n.cloud.condition("web-1"), "nothing")
		})
	})
	t.Run("asked for and cancelled without the cloud", func(t *testing.T) {
		onNode(t, func(t *testing.T, n *node) {
			prepare(t, n)
			n.cloud.be(true)
			n.ask(t, "web-1")
			pass(time.Second)
			if _, err := n.Cancel(web1); err != nil {
				t.Fatal(err)
			}
			n.cloud.be(false)
			pass(time.Minute)
			want(t, "the pod", n.cloud.condition("web-1"), "nothing")
			n.ask(t, "web-1")
			pass(2 * pullTime)
			want(t, "the pod, asked for again", n.cloud.condition("web-1"), "True PrepullReady v3")
		})
	})
}

func TestATagIsLookedAtAgainWhenItIsAskedFor(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		const pinned = "app@sha256:0123456789012345678901234567890123456789012345678901234567890123"
		n.wanted(t, "web-1", "v2", "app", pinned)
		pass(3 * pullTime)
		n.engine.took()
		n.engine.set(func() { n.engine.fail["app"] = engineapi.NewError(engineapi.Unreachable, errors.New("no route")) })
		n.ask(t, "web-1")
		pass(pullTime / 2)
		want(t, "meanwhile", n.shows("web-1"), "Ready: app=Ready "+pinned+"=Ready")
		pass(time.Minute)
		want(t, "the engine", n.engine.took(), "pull app")
		want(t, "with a registry that is away", n.shows("web-1"), "Ready: app=Ready "+pinned+"=Ready")
	})
}

func TestAnotherPodsRequestDoesNotWaitForAnOldFailure(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.engine.fail["app"] = engineapi.NewError(engineapi.Unauthorized, errors.New("refused"))
		n.cloud.set(oldPod("web-1", "v2", "app"), oldPod("web-2", "v2", "app"))
		n.ask(t, "web-1")
		pass(time.Hour)
		n.engine.took()
		n.ask(t, "web-2")
		pass(pullTime)
		want(t, "the engine", n.engine.took(), "pull app")
	})
}

// sticky is an engine that cannot release one image.
type sticky struct{ *scripted }

func (e sticky) Release(ctx context.Context, name string) error {
	if strings.Contains(name, "aaa") {
		return engineapi.NewError(engineapi.Other, errors.New("it sticks"))
	}
	return e.scripted.Release(ctx, name)
}

func TestOneImageThatCannotBeLetGoHoldsUpNoOther(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.engine.set(func() { n.engine.held["aaa"], n.engine.held["zzz"] = true, true })
		n.other = sticky{n.engine}
		n.restart(t)
		pass(time.Second)
		want(t, "the engine", n.engine.took(), "release zzz")
	})
}

func TestAFailureIsOneLine(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.engine.fail["app"] = engineapi.NewError(engineapi.NotFound, errors.New("no such tag"))
		wanted := target("v2", "app")
		wanted.ImagePullSecrets = []string{"one", "two"}
		n.cloud.set(podWith("web-1", wanted))
		n.ask(t, "web-1")
		pass(2 * pullTime)
		s, _ := n.State(web1)
		if got := s.Images[0].LastError; strings.Contains(got, "\n") || !strings.Contains(got, "no such tag") || !strings.Contains(got, "secret ns/one cannot be read") || !strings.Contains(got, "secret ns/two") {
			t.Errorf("got %q", got)
		}
	})
}

func TestATargetThatWasMendedByHandIsPulledAnew(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.wanted(t, "web-1", "v2", "app")
		pass(2 * pullTime)
		n.wanted(t, "web-1", "v2", "app", "side")
		pass(3 * pullTime)
		want(t, "state", n.shows("web-1"), "Ready: app=Ready side=Ready")
	})
}
