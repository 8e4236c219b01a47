package imagepull

import (
	"context"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/imagepull/backoff"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/imagepull/job"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// Measure finds 100 bytes of each image.
func (e *scripted) Measure(_ context.Context, r engineapi.Request) (int64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.note("measure", job.ImageName(r.Image))
	e.asked = append(e.asked, r)
	if f := e.fail[r.Image]; f != nil {
		return 0, f
	}
	return 100, nil
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
		size := func(what string, next upgrade.Target, at, later int64, calls string) {
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
		pass(sizeLasts)
		size("after an hour", v2, 200, 200, "measure reg.example/app, measure side")

		n.engine.die("dead", engineapi.Unreachable, 0)
		size("another version, whose registry is away", v3, 0, 0, "measure dead")
		size("again, while it is away", v3, 0, 0, "")
		n.engine.heal("dead")
		pass(backoff.Longest)
		size("once it is back", v3, 0, 100, "measure dead")

		n.cloud.remove("web-1")
		other := oldPod("web-2", "v2", image, "side")
		n.cloud.set(other)
		pass(0)
		n.Size(other, v2)
		pass(0)
		if len(n.sizes.known) != 1 {
			t.Errorf("a pod that is gone is not forgotten: %v", n.sizes.known)
		}
	})
}
