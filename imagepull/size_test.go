package imagepull

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/ota/api"
)

// Measure asks the registry, and finds 100 bytes of each image.
func (e *scripted) Measure(_ context.Context, r engineapi.Request) (func(context.Context) (int64, error), error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.note("measure", imageName(r.Image))
	e.asked = append(e.asked, r)
	if f := e.fail[r.Image]; f != nil {
		return nil, f
	}
	return func(context.Context) (bytes int64, err error) {
		e.set(func() { bytes = e.missing })
		return bytes, nil
	}, nil
}

func TestAPullIsMeasuredForThoseWhoLook(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.cloud.secrets["registry"] = login("ns", "registry")
		const image = "reg.example/app"
		v2, v3 := target("v2", image, "side"), target("v3", "dead")
		pod := oldPod("web-1", "v2", image, "side")
		n.cloud.set(pod)
		pass(time.Hour)
		want(t, "nobody looks", n.engine.took(), "")
		size := func(what string, next api.Target, at, later int64, calls string) {
			t.Helper()
			if got := n.Size(pod, next); got != at {
				t.Errorf("%s: %d bytes at once, want %d", what, got, at)
			}
			pass(0)
			if got := n.Size(pod, next); got != later {
				t.Errorf("%s: then %d bytes, want %d", what, got, later)
			}
			pass(0)
			want(t, what, n.engine.took(), calls)
		}

		size("somebody looks", v2, 0, 200, "measure reg.example/app, measure side")
		if got := n.engine.asked[0].Credentials; len(got) != 1 || got[0].Password != "hunter2" {
			t.Errorf("the registry is asked with %d credentials, want the pod's", len(got))
		}
		size("again", v2, 200, 200, "")
		n.engine.set(func() { n.engine.missing = 70 })
		pass(countInterval)
		size("layers have come with another image", v2, 200, 140, "")
		n.engine.set(func() { n.engine.missing = 100 })

		n.engine.die("dead", engineapi.Unreachable, 0)
		size("another version, whose registry is away", v3, 0, 0, "measure dead")
		size("again, while it is away", v3, 0, 0, "")
		n.engine.heal("dead")
		n.CloudReturned()
		size("once it is back", v3, 0, 100, "measure dead")

		n.cloud.remove("web-1")
		other := oldPod("web-2", "v2", image, "side")
		n.cloud.set(other)
		pass(0)
		n.Size(other, v2)
		pass(0)
		if len(n.sizes.known) != len(v2.Images()) {
			t.Errorf("a pod that is gone is not forgotten: %v", n.sizes.known)
		}
		n.engine.took()
		pod = oldPod("web-3", "v2", image, "side")
		n.cloud.set(pod)
		size("another pod with the same target", v2, 200, 200, "")
	})
}

// TestHowOftenRegistriesAreAskedForThoseWhoLook is for registries that count requests, such as Docker Hub.
func TestHowOftenRegistriesAreAskedForThoseWhoLook(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		pod := oldPod("web-1", "v2", "app", "gone")
		n.cloud.set(pod)
		n.engine.die("gone", engineapi.NotFound, 0)
		next := target("v2", "app", "gone")
		look := func(during time.Duration) (calls string) {
			for range during / time.Minute {
				n.Size(pod, next)
				pass(time.Minute)
			}
			return n.engine.took()
		}
		want(t, "in six hours", look(6*time.Hour), "measure app, measure gone"+strings.Repeat(", measure gone", 8))
		n.engine.heal("gone")
		want(t, "in the hour after it was pushed", look(time.Hour), "measure gone")
		if got := n.Size(pod, next); got != 200 {
			t.Errorf("then there are %d bytes to fetch", got)
		}

		n.engine.die("app", engineapi.Unreachable, 0)
		n.engine.set(func() { n.engine.missing = 30 })
		n.ask(t, "web-1")
		pass(3 * pullTime)
		n.Size(pod, next)
		pass(0)
		if got := n.Size(pod, next); got != 60 {
			t.Errorf("when a pull has fetched some of it, there are %d bytes to fetch", got)
		}
	})
}
