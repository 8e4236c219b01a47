package imagepull

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/engine"
	"github.com/edgehub-io/edgehub/ota/nodeapi"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

func TestImagesArePulledOneAfterTheOther(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.cloud.set(oldPod("web-1", "v2", "app", "side"))
		n.ask(t, "web-1")
		synctest.Wait()
		want(t, "at once", n.shows("web-1"), "Pulling: app=Pulling side=Queued")
		pass(pullTime + tellPause)
		want(t, "then", n.shows("web-1"), "Pulling: app=Ready side=Pulling")
		want(t, "the pod, while pulling", n.cloud.says("web-1"), "False PrepullPulling v2")
		pass(pullTime + tellPause)
		want(t, "at last", n.shows("web-1"), "Ready: app=Ready side=Ready")
		want(t, "the pod, at last", n.cloud.says("web-1"), "True PrepullReady v2")
		want(t, "the engine", n.engine.took(), "pull app, pull side")
		if n.engine.most != 1 {
			t.Errorf("%d images at a time", n.engine.most)
		}
		want(t, "events", fmt.Sprint(n.cloud.events), "[Normal web-1 ImagePrepulled Normal web-1 ImagePrepulled]")
	})
}

// Invariant 1: what was answered is not lost. Invariant 2, as far as it is ours: what
// is ready is looked for, and not pulled.
func TestARestartLosesNothing(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.cloud.set(oldPod("web-1", "v2", "app", "side"))
		n.ask(t, "web-1")
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
		n.engine.fail["app"] = engine.NewError(engine.Unreachable, errors.New("no route"))
		n.cloud.set(oldPod("web-1", "v2", "app"))
		n.ask(t, "web-1")
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
		s, _ := n.State(types.NamespacedName{Namespace: "ns", Name: "web-1"})
		if i := s.Images[0]; i.Attempts != 9 || i.Reason != "RegistryUnreachable" || i.LastError != "no route" {
			t.Errorf("got %+v", i)
		}
		want(t, "the pod", n.cloud.says("web-1"), "False PrepullRegistryUnreachable v2")
		want(t, "events", fmt.Sprint(n.cloud.events), "[Warning web-1 ImagePrepullFailed]")

		pass(2 * pullTime)
		n.engine.took()
		n.ask(t, "web-1")
		synctest.Wait()
		want(t, "asked for again", n.engine.took(), "pull app")
		n.engine.mu.Lock()
		delete(n.engine.fail, "app")
		n.engine.mu.Unlock()
		pass(2 * pullTime)
		want(t, "when it is mended", n.shows("web-1"), "Ready: app=Ready")
		want(t, "the pod, then", n.cloud.says("web-1"), "True PrepullReady v2")
	})
}

func TestARegistryIsAskedAgainWhenTheCloudIsBack(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.engine.fail["app"] = engine.NewError(engine.Unreachable, errors.New("no route"))
		n.cloud.set(oldPod("web-1", "v2", "app"))
		n.ask(t, "web-1")
		pass(time.Hour)
		for n.shows("web-1") != "Failed: app=Failed" {
			pass(pullTime)
		}
		n.engine.took()
		n.CloudReturned()
		pass(returnJitter)
		want(t, "the engine", n.engine.took(), "pull app")
	})
}

func TestOneImageThatFailsDoesNotHoldUpOthers(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.engine.fail["app"] = engine.NewError(engine.NotFound, errors.New("no such tag"))
		n.cloud.set(oldPod("web-1", "v2", "app", "side"))
		n.ask(t, "web-1")
		pass(2*pullTime + tellPause)
		want(t, "state", n.shows("web-1"), "Failed: app=Failed side=Ready")
	})
}

func TestARegistryThatAsksForTimeGetsIt(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		busy := engine.NewError(engine.RegistryBusy, errors.New("too many requests"))
		busy.RetryAfter = 10 * time.Minute
		n.engine.fail["app"] = busy
		n.cloud.set(oldPod("web-1", "v2", "app"))
		n.ask(t, "web-1")
		pass(10 * time.Minute)
		n.ask(t, "web-1") // in a hurry or not
		pass(2 * pullTime)
		want(t, "in ten minutes", n.engine.took(), "pull app")
		pass(5 * time.Minute / 2)
		want(t, "then", n.engine.took(), "pull app")
	})
}

func TestWhatCannotHelpIsNotTriedAgain(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.engine.fail["A:B"] = engine.NewError(engine.InvalidImageName, errors.New("no name"))
		n.cloud.set(oldPod("web-1", "v2", "A:B"))
		n.ask(t, "web-1")
		pass(time.Hour)
		want(t, "the engine", n.engine.took(), "pull A:B")
		s, _ := n.State(types.NamespacedName{Namespace: "ns", Name: "web-1"})
		if s.State != nodeapi.Failed || s.Images[0].NextRetry != nil {
			t.Errorf("got %+v", s)
		}
	})
}

func TestAnotherTargetEndsWhatIsNoLongerWanted(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.cloud.set(oldPod("web-1", "v2", "app:2", "side"))
		n.ask(t, "web-1")
		pass(pullTime / 2)
		n.cloud.set(oldPod("web-1", "v3", "app:3", "side"))
		synctest.Wait()
		want(t, "state", n.shows("web-1"), "none")
		want(t, "the engine", n.engine.took(), "pull app:2")
		pass(linger + time.Second)
		want(t, "the engine, when the next target does not need it either", n.engine.took(), "release app:2")
		want(t, "the pod", n.cloud.says("web-1"), "nothing")
		n.ask(t, "web-1")
		pass(2*pullTime + tellPause)
		want(t, "asked for again", n.shows("web-1"), "Ready: app:3=Ready side=Ready")

		pod := oldPod("web-1", "v4", "app:4", "side")
		pod.Status = n.cloud.pods["web-1"].Status
		n.cloud.set(pod)
		pass(time.Second)
		want(t, "the pod, ready for a revision that is not the target", n.cloud.says("web-1"), "True PrepullReady v3")
	})
}

func TestAPullThatIsUnderWayGoesOnForOthers(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.cloud.set(oldPod("web-1", "v2", "app"), oldPod("web-2", "v2", "app"))
		n.ask(t, "web-1")
		n.ask(t, "web-2")
		pass(pullTime / 2)
		if was, err := n.Cancel(types.NamespacedName{Namespace: "ns", Name: "web-1"}); !was || err != nil {
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
		name := types.NamespacedName{Namespace: "ns", Name: "web-1"}
		if was, err := n.Cancel(name); was || err != nil {
			t.Errorf("nothing to cancel: %t, %v", was, err)
		}
		n.ask(t, "web-1")
		pass(pullTime / 2)
		want(t, "the pod, before", n.cloud.says("web-1"), "False PrepullPulling v2")
		if was, err := n.Cancel(name); !was || err != nil {
			t.Errorf("got %t, %v", was, err)
		}
		pass(time.Second)
		want(t, "state", n.shows("web-1"), "none")
		want(t, "the pod, which may be upgraded without", n.cloud.says("web-1"), "nothing")
		want(t, "the engine", n.engine.took(), "pull app, release app")
		n.restart(t)
		want(t, "after a restart", n.shows("web-1"), "none")
	})
}

// Invariant 4, as far as it is ours, and the end of it.
func TestImagesAreHeldUntilTheNewPodUsesThem(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.cloud.set(oldPod("web-1", "v2", "app"))
		n.ask(t, "web-1")
		pass(2 * pullTime)
		want(t, "the engine", n.engine.took(), "pull app")

		deleting := oldPod("web-1", "v2", "app")
		deleting.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		n.cloud.set(deleting)
		pass(time.Second)
		n.cloud.remove("web-1")
		pass(time.Second)
		n.cloud.set(newPod("web-2", "v2", false))
		pass(time.Second)
		want(t, "before its containers are there", n.engine.took(), "")
		n.restart(t)
		want(t, "after a restart then", n.engine.took(), "keep app")

		n.cloud.set(newPod("web-2", "v2", true))
		pass(time.Second)
		want(t, "when they are", n.engine.took(), "release app")
		want(t, "the queue", fmt.Sprint(n.States()), "[]")
	})
}

func TestImagesOfAPodWithoutSuccessorAreLetGo(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.cloud.set(oldPod("web-1", "v2", "app"))
		n.ask(t, "web-1")
		pass(2 * pullTime)
		n.cloud.remove("web-1")
		n.cloud.set(newPod("web-2", "v1", true)) // somebody undid the rollout
		pass(orphaned - time.Minute)
		if got := n.engine.took(); strings.Contains(got, "release") {
			t.Errorf("too early: %s", got)
		}
		pass(time.Minute + checkEvery)
		if got := n.engine.took(); !strings.Contains(got, "release app") {
			t.Errorf("never let go: %s", got)
		}
	})
}

// Invariant 5.
func TestWhatNobodyWantsIsLetGoAtTheStart(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.stop()
		n.engine.held["left"] = true
		n.engine.absent = true
		n.begin(t, 1)
		want(t, "without containerd", n.engine.took(), "")
		n.engine.mu.Lock()
		n.engine.absent = false
		n.engine.mu.Unlock()
		pass(sweepRetry + time.Second)
		want(t, "with it", n.engine.took(), "release left")
	})
}

func TestWhatSomebodyRemovesIsPutBack(t *testing.T) {
	image := imageOf("app")
	for name, removed := range map[string]string{
		"by its name": image.Name, "by its ID": image.ID, "by its digest": "docker.io/library/app@" + image.Target.Digest.String(),
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(t *testing.T, n *node) {
				n.cloud.set(oldPod("web-1", "v2", "app"))
				n.ask(t, "web-1")
				pass(2 * pullTime)
				n.engine.took()
				n.engine.remove <- "another"
				n.engine.remove <- removed
				synctest.Wait()
				want(t, "the engine", n.engine.took(), "keep app")

				n.engine.mu.Lock()
				n.engine.lost[image.Name] = true
				n.engine.mu.Unlock()
				n.engine.remove <- removed
				pass(pullTime / 2)
				want(t, "the engine, when the content is gone", n.engine.took(), "keep app, pull app")
				want(t, "the pod, then", n.cloud.says("web-1"), "False PrepullPulling v2")
				pass(pullTime)
				want(t, "at last", n.shows("web-1"), "Ready: app=Ready")
			})
		})
	}
}

func TestReadyImagesAreLookedForNowAndThen(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.cloud.set(oldPod("web-1", "v2", "app"))
		n.ask(t, "web-1")
		pass(2 * pullTime)
		n.engine.took()
		pass(checkEvery)
		want(t, "the engine", n.engine.took(), "keep app")
	})
}

// Invariant 6, as far as it is ours.
func TestThePodIsToldOnceTheCloudIsBack(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.cloud.set(oldPod("web-1", "v2", "app"))
		n.cloud.be(true, false)
		n.ask(t, "web-1")
		pass(time.Minute)
		want(t, "state", n.shows("web-1"), "Ready: app=Ready")
		if len(n.cloud.patches) > 0 {
			t.Errorf("patches while the cloud is away: %q", n.cloud.patches)
		}
		n.cloud.be(false, true) // the first patch meets the cache
		n.CloudReturned()
		pass(tellRetry + time.Second)
		want(t, "the pod, after a patch that got lost", n.cloud.says("web-1"), "nothing")
		n.cloud.be(false, false)
		n.CloudReturned()
		pass(time.Second)
		want(t, "the pod", n.cloud.says("web-1"), "True PrepullReady v2")
		sent := len(n.cloud.patches)
		pass(time.Hour)
		if len(n.cloud.patches) != sent {
			t.Errorf("%d patches of what the pod says already", len(n.cloud.patches)-sent)
		}
	})
}

func TestConditionsOfOthersStay(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		pod := oldPod("web-1", "v2", "app")
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: upgrade.ImageCondition, Status: corev1.ConditionFalse, Reason: "Somebody", Message: upgrade.Message("v2"),
		}}
		n.cloud.set(pod)
		pass(time.Minute)
		want(t, "the pod", n.cloud.says("web-1"), "False Somebody v2")
		n.ask(t, "web-1")
		pass(2 * pullTime)
		want(t, "the pod, once we are asked", n.cloud.says("web-1"), "True PrepullReady v2")
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
		want(t, "the pod", n.cloud.says("web-1"), "True PrepullReady v2")

		if was, err := n.Cancel(types.NamespacedName{Namespace: "ns", Name: "web-1"}); !was || err != nil {
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

func TestFollow(t *testing.T) {
	name := types.NamespacedName{Namespace: "ns", Name: "web-1"}
	follow := func(n *node) (lines func() []string, ended chan struct{}) {
		var seen []string
		ended = make(chan struct{})
		go func() {
			defer close(ended)
			n.Follow(context.Background(), name, time.Millisecond, func(s nodeapi.ImagePull) bool {
				if line := describe(s); !slices.Contains(seen, line) {
					seen = append(seen, line)
				}
				return true
			})
		}()
		return func() []string { <-ended; return seen }, ended
	}
	t.Run("until it is ready", func(t *testing.T) {
		onNode(t, func(t *testing.T, n *node) {
			n.cloud.set(oldPod("web-1", "v2", "app"))
			n.ask(t, "web-1")
			synctest.Wait()
			lines, _ := follow(n)
			want(t, "lines", fmt.Sprint(lines()), "[Pulling: app=Pulling Ready: app=Ready]")
		})
	})
	t.Run("until it is cancelled", func(t *testing.T) {
		onNode(t, func(t *testing.T, n *node) {
			n.cloud.set(oldPod("web-1", "v2", "app"))
			n.ask(t, "web-1")
			synctest.Wait()
			lines, _ := follow(n)
			synctest.Wait()
			if _, err := n.Cancel(name); err != nil {
				t.Fatal(err)
			}
			want(t, "lines", fmt.Sprint(lines()), "[Pulling: app=Pulling Cancelled: app=Pulling]")
		})
	})
	t.Run("until there is another target", func(t *testing.T) {
		onNode(t, func(t *testing.T, n *node) {
			n.cloud.set(oldPod("web-1", "v2", "app"))
			n.ask(t, "web-1")
			synctest.Wait()
			lines, _ := follow(n)
			synctest.Wait()
			n.cloud.set(oldPod("web-1", "v3", "app:3"))
			want(t, "lines", fmt.Sprint(lines()), "[Pulling: app=Pulling Superseded: app=Pulling]")
		})
	})
	t.Run("until it can never be", func(t *testing.T) {
		onNode(t, func(t *testing.T, n *node) {
			n.engine.fail["A:B"] = engine.NewError(engine.InvalidImageName, errors.New("no name"))
			n.cloud.set(oldPod("web-1", "v2", "A:B"))
			n.ask(t, "web-1")
			synctest.Wait()
			lines, _ := follow(n)
			want(t, "lines", fmt.Sprint(lines()), "[Pulling: A:B=Pulling Failed: A:B=Failed]")
		})
	})
	t.Run("until the hub stops", func(t *testing.T) {
		onNode(t, func(t *testing.T, n *node) {
			n.cloud.set(oldPod("web-1", "v2", "app"))
			n.ask(t, "web-1")
			_, ended := follow(n)
			synctest.Wait()
			n.stop()
			<-ended
			n.begin(t, 1)
		})
	})
}

func TestARequestThatCannotBeKeptIsRefused(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		if err := os.WriteFile(n.dir, nil, 0o600); err != nil { // in the folder's place
			t.Fatal(err)
		}
		pod := oldPod("web-1", "v2", "app")
		n.cloud.set(pod)
		if err := n.Request(pod, target("v2", "app")); err == nil {
			t.Error("it was taken")
		}
		pass(time.Minute)
		want(t, "the engine", n.engine.took(), "")
		want(t, "state", n.shows("web-1"), "none")
	})
}

func TestADamagedFileIsMovedAside(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.cloud.set(oldPod("web-1", "v2", "app"))
		n.ask(t, "web-1")
		n.stop()
		for name, content := range map[string]string{"cut.json": `{"uid":"cut","namespace":"n`, "other.json": `{"uid":"x"}`, "uid.json.new": "x"} {
			if err := os.WriteFile(filepath.Join(n.dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		n.begin(t, 1)
		if got := len(n.States()); got != 1 {
			t.Errorf("%d pre-pulls; want the one that is whole", got)
		}
		for _, name := range []string{"cut.json.damaged", "other.json.damaged"} {
			if _, err := os.Stat(filepath.Join(n.dir, name)); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestNothingOnDiskIsASecret(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.cloud.secrets["registry"] = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "registry"}, Type: corev1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"reg.example":{"username":"u","password":"hunter2"}}}`)},
		}
		n.cloud.set(oldPod("web-1", "v2", "reg.example/app"))
		n.ask(t, "web-1")
		pass(2 * pullTime)
		if got := n.engine.asked[0].Credentials; len(got) != 1 || got[0].Password != "hunter2" {
			t.Fatalf("the engine was given %v", got)
		}
		files, err := os.ReadDir(n.dir)
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, f := range files {
			raw, err := os.ReadFile(filepath.Join(n.dir, f.Name()))
			if err != nil || strings.Contains(string(raw), "hunter2") || strings.Contains(string(raw), "aHVudGVyMg") {
				t.Errorf("%s: %v\n%s", f.Name(), err, raw)
			}
		}
	})
}

func TestASecretThatCannotBeReadIsNamed(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.engine.fail["app"] = engine.NewError(engine.Unauthorized, errors.New("refused"))
		n.cloud.set(oldPod("web-1", "v2", "app"))
		n.ask(t, "web-1")
		pass(2 * pullTime)
		s, _ := n.State(types.NamespacedName{Namespace: "ns", Name: "web-1"})
		if got := s.Images[0].LastError; !strings.Contains(got, "refused") || !strings.Contains(got, "secret ns/registry cannot be read") {
			t.Errorf("got %q", got)
		}
	})
}
