package imagepull

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSecret stays where it belongs, whether it is refused or let in: in the hub's cache, and where the node has its
// own. The other tests look, too, when they end. Invariant 8.
func TestSecret(t *testing.T) {
	t.Parallel()
	for name, ofPod := range map[string]bool{"of a pod": true, "of the node": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			r := newRig(t, "--kubelet-root-dir="+dir)
			reference, _ := r.push("private", "2", r.layer(1, 100<<10))
			r.registry.Require("private", user, "another password")
			var secrets []string
			where := "config.json"
			if ofPod {
				secrets, where = []string{"login"}, "secret "+r.namespace+"/login"
				r.pullSecret("login", password)
			} else {
				r.must(os.WriteFile(filepath.Join(dir, "config.json"), r.dockerConfig(password), 0o600))
			}
			r.hub.Start()
			d := r.daemonSet("web", secrets...)
			d.change(reference)
			d.mark(false)
			r.askOnceMarked(d.pod.Name)
			if failed := r.awaitFailure(d.pod.Name, "Unauthorized"); !strings.Contains(failed.LastError, where) {
				t.Errorf("%q does not name what was refused", failed.LastError)
			}
			d.awaitEvent("ImagePrepullFailed", reference)
			d.awaitCondition(d.not("Unauthorized"))
			d.expectNoSecretTold()

			r.registry.Require("private", user, password)
			r.ask(d.pod.Name)
			r.awaitReady(d.pod.Name)
			d.awaitCondition(d.ready())
			d.expectNoSecretTold()
		})
	}
}
