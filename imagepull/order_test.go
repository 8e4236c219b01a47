package imagepull

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// addDead requests images for a pod that cannot be pulled. Each attempt takes a time.
func (n *node) addDead(t *testing.T, pod string, count int, reason engineapi.Reason, takes time.Duration) []string {
	t.Helper()
	var images []string
	for i := range count {
		images = append(images, fmt.Sprintf("%s-dead-%d", pod, i))
		n.engine.die(images[i], reason, takes)
	}
	n.wanted(t, pod, "v2", images...)
	return images
}

// An image that can be pulled waits only for the running attempt and for other such images, and each dead image is
// still tried. With 14 images of 30 seconds, the first is due again before the last has been tried.
func TestNoImageStarves(t *testing.T) {
	for _, q := range []struct {
		dead  int
		takes time.Duration
		after time.Duration // another image is asked for, five times
	}{{1, 90 * time.Second, 10 * time.Minute}, {14, 30 * time.Second, 2 * time.Hour}, {40, 11 * time.Second, 1777 * time.Second}} {
		t.Run(fmt.Sprint(q.dead), func(t *testing.T) {
			onNode(t, func(t *testing.T, n *node) {
				count, takes := q.dead, q.takes
				dead := n.addDead(t, "web-0", count, engineapi.Unreachable, takes)
				for round := range 5 {
					pass(q.after)
					name := fmt.Sprintf("web-%d", round+1)
					n.cloud.set(oldPod(name, "v2", name+"-a", name+"-b"))
					n.ask(t, name)
					pass(takes + 2*pullTime)
					want(t, "pod "+name, n.shows(name), fmt.Sprintf("Ready: %[1]s-a=Ready %[1]s-b=Ready", name))
				}
				pass(time.Hour)
				// The longest backoff, and one turn of all other images.
				longest := time.Duration((1+retryJitter)*float64(longestRetry)) + time.Duration(count+10)*(takes+pullTime)
				for _, image := range dead {
					n.checkTurns(t, image, longest)
				}
			})
		})
	}
}

// checkTurns fails if the pause between two attempts was ever longer than that.
func (n *node) checkTurns(t *testing.T, image string, longest time.Duration) {
	t.Helper()
	turns := slices.Concat(n.engine.starts[image], []time.Time{time.Now()})
	for i := range turns[1:] {
		if pause := turns[i+1].Sub(turns[i]); pause > longest {
			t.Errorf("image %s was not tried for %v; want at most %v", image, pause, longest)
		}
	}
}

// Each return of the cloud resets the failures of images whose registry could not be reached. If the cloud
// comes and goes, they always have fewer failures than an image that failed for another reason.
func TestAnImageIsNotOvertakenForEver(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.engine.die("app", engineapi.NotFound, pullTime)
		n.wanted(t, "web-2", "v2", "app")
		pass(time.Minute)
		n.addDead(t, "web-1", 14, engineapi.Unreachable, 30*time.Second)
		n.engine.heal("app")
		for range 30 {
			pass(time.Minute)
			n.CloudReturned()
		}
		want(t, "the image that can be pulled by now", n.shows("web-2"), "Ready: app=Ready")
	})
}

// One round of many images that fail late takes the better part of a day.
func TestAnImageDoesNotWaitForARoundOfOthersThatFail(t *testing.T) {
	const late = 10 * time.Minute
	onNode(t, func(t *testing.T, n *node) {
		n.addDead(t, "web-1", 100, engineapi.Unreachable, late)
		pass(60 * time.Hour)
		n.wanted(t, "web-2", "v2", "app")
		pass(2*late + 2*pullTime)
		want(t, "the image that can be pulled", n.shows("web-2"), "Ready: app=Ready")
	})
}

// A repeated request does not move an image behind those that have waited for a shorter time.
func TestAskingAgainKeepsTheTurn(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.engine.takes["first"] = time.Minute
		n.cloud.set(oldPod("web-1", "v2", "first"), oldPod("web-2", "v2", "second"), oldPod("web-3", "v2", "third"))
		for _, pod := range []string{"web-1", "web-2", "web-3"} {
			n.ask(t, pod)
			pass(time.Second)
		}
		n.ask(t, "web-2")
		pass(time.Minute + 3*pullTime)
		want(t, "the engine", n.engine.took(), "pull first, pull second, pull third")
	})
}

// Somebody has corrected what was wrong with it.
func TestAnImageThatIsAskedForAgainComesBeforeOthersThatFail(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.engine.die("app", engineapi.NotFound, pullTime)
		n.wanted(t, "web-2", "v2", "app")
		pass(time.Minute)
		n.addDead(t, "web-1", 40, engineapi.Unreachable, 30*time.Second)
		pass(time.Hour)
		n.engine.heal("app")
		n.ask(t, "web-2")
		pass(30*time.Second + 2*pullTime)
		want(t, "the image", n.shows("web-2"), "Ready: app=Ready")
	})
}

// What was imported is there at once, although a registry is slow, or wishes not to be asked.
func TestAnImportWaitsForNoRegistry(t *testing.T) {
	tests := map[string]func(*scripted){
		"a pull that takes hours": func(e *scripted) { e.set(func() { e.takes["app"] = 5 * time.Hour }) },
		"a registry that wants a respite": func(e *scripted) {
			e.die("app", engineapi.RegistryBusy, pullTime)
			e.fail["app"].RetryAfter = 5 * time.Hour
		},
	}
	for name, slow := range tests {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(t *testing.T, n *node) {
				slow(n.engine)
				n.wanted(t, "web-1", "v2", "app")
				pass(time.Minute)
				n.engine.heal("app") // as with the image on the node
				ask := func(imported, ready bool) {
					t.Helper()
					if err := n.Request(oldPod("web-1", "v2", "app"), target("v2", "app"), imported); err != nil {
						t.Fatal(err)
					}
					pass(2 * pullTime)
					if got := n.shows("web-1"); (got == "Ready: app=Ready") != ready {
						t.Errorf("imported: %t, and it is %s", imported, got)
					}
				}
				ask(true, false) // anybody may say so
				n.engine.set(func() { n.engine.brings = []string{imageName("app")} })
				ask(false, false)
				n.engine.setAbsent(true)
				ask(true, false)
				n.engine.setAbsent(false)
				ask(true, true)
			})
		})
	}
}
