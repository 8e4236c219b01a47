package imagepull

import (
	"errors"
	"strings"
	"testing"
	"time"
)

var errRefused = errors.New("it is refused")

// Kubelet is about to start containers from images, and nobody can pull.
func TestImagesArePlaced(t *testing.T) {
	for name, tt := range map[string]struct {
		before  func(t *testing.T, n *node)
		images  []string
		refused string // by the caller
		missing string
		tags    string
		calls   string
		failed  bool
	}{
		"an image of a job, whose tag points elsewhere until now": {
			func(t *testing.T, n *node) { n.wanted(t, "web-1", "v2", "app"); pass(2 * pullTime) }, []string{"app"}, "", "", "app", "", false,
		},
		"one that its caller does not want": {
			func(t *testing.T, n *node) { n.wanted(t, "web-1", "v2", "app"); n.put("old"); pass(2 * pullTime) }, []string{"app", "old"}, "old", "", "", "keep old", true,
		},
		"an image that is being pulled": {
			func(t *testing.T, n *node) { n.wanted(t, "web-1", "v2", "app"); pass(pullTime / 2) }, []string{"app"}, "", "app", "", "", false,
		},
		"images that no job wants": {func(_ *testing.T, n *node) { n.put("old", "side") }, []string{"old", "side"}, "", "", "old, side", "keep old, keep side", false},
		"one of two is not there": {
			func(t *testing.T, n *node) { n.wanted(t, "web-1", "v2", "app"); n.put("old"); pass(2 * pullTime) }, []string{"app", "old", "gone"}, "", "gone", "", "keep old", false,
		},
		"containerd does not answer": {func(_ *testing.T, n *node) { n.put("old"); n.engine.setAbsent(true) }, []string{"old"}, "", "", "", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(t *testing.T, n *node) {
				tt.before(t, n)
				n.engine.took()
				missing, err := n.Place(t.Context(), tt.images, func(image, id string) error {
					if id != imageOf(image).ID && id != imageOf(imageName(image)).ID {
						t.Errorf("image %s has the ID %s", image, id)
					}
					if image == tt.refused {
						return errRefused
					}
					return nil
				})
				want(t, "missing", strings.Join(missing, ", "), tt.missing)
				want(t, "tags", n.engine.tagged(), tt.tags)
				want(t, "the engine", n.engine.took(), tt.calls)
				if (err != nil) != tt.failed || errors.Is(err, errRefused) != (tt.refused != "") {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

// The way back needs the old image, and kubelet's garbage collection removes what runs no more when the disk is almost full.
func TestNeededImagesStayWhenTheDiskIsAlmostFull(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.put("old", "older")
		n.needed = []string{"old"}
		n.retain("old", "older")
		pass(time.Second)
		n.engine.set(func() { n.engine.full = true })
		pass(checkInterval)
		if calls := n.engine.took(); strings.Contains(calls, "release old,") || !strings.Contains(calls, "release older") || !n.Retained("old") || n.Retained("older") {
			t.Errorf("the engine: %s", calls)
		}
	})
}
