package imagepull

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSecret stays where it belongs, in the hub's cache, when it is refused, and when it
// is let in. The other tests look, too, when they end. Invariant 8.
func TestSecret(t *testing.T) {
	t.Parallel()
	each(t, func(r *rig) {
		reference, _ := r.push("private", "2", r.layer(1, 100<<10))
		r.registry.Require("private", user, "another password")
		r.pullSecret("registry", password)
		r.hub.Start()
		d := r.daemonSet("web", "registry")
		d.change(reference)
		d.mark(false)
		r.askOnceMarked(d.pod.Name)
		failed := r.awaitFailure(d.pod.Name, "Unauthorized")
		if !strings.Contains(failed.LastError, "registry") {
			t.Errorf("%q does not name the secret that was refused", failed.LastError)
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

// TestSecretOfTheNode is the same for the credentials that the node itself has for
// registries.
func TestSecretOfTheNode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := newRig(t, "--kubelet-root-dir="+dir)
	reference, _ := r.push("private", "2", r.layer(1, 100<<10))
	r.registry.Require("private", user, "another password")
	r.must(os.WriteFile(filepath.Join(dir, "config.json"), r.dockerConfig(password), 0o600))
	r.hub.Start()
	d := r.daemonSet("web")
	d.change(reference)
	d.mark(false)
	r.askOnceMarked(d.pod.Name)
	r.awaitFailure(d.pod.Name, "Unauthorized")
	d.awaitEvent("ImagePrepullFailed", reference)
	d.expectNoSecretTold()

	r.registry.Require("private", user, password)
	r.ask(d.pod.Name)
	r.awaitReady(d.pod.Name)
	d.expectNoSecretTold()
}
