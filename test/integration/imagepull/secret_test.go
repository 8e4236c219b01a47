package imagepull

import (
	"encoding/base64"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		d.awaitTold(d.not("Unauthorized"))
		d.expectNoSecretTold()

		r.registry.Require("private", user, password)
		r.ask(d.pod.Name)
		r.awaitReady(d.pod.Name)
		d.awaitTold(d.ready())
		d.expectNoSecretTold()
	})
}

// What is not there has to be looked for in the right way.
func TestLeaksAreFound(t *testing.T) {
	t.Parallel()
	pair := user + ":" + password
	for name, text := range map[string]string{
		"in clear":             `msg="password is ` + password + `"`,
		"in base64":            "x" + base64.StdEncoding.EncodeToString([]byte(password)) + "x",
		"with the user":        base64.StdEncoding.EncodeToString([]byte(pair)),
		"with another user":    base64.StdEncoding.EncodeToString([]byte("m" + pair)),
		"with a third":         base64.StdEncoding.EncodeToString([]byte("me" + pair)),
		"for use in URLs":      base64.RawURLEncoding.EncodeToString([]byte(pair)),
		"as a secret holds it": (&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"auth": password}}).String(),
	} {
		if len(leaks(text)) == 0 {
			t.Errorf("%s, it is not found in %s", name, text)
		}
	}
	if found := leaks("pull-secret registry of user " + user); len(found) > 0 {
		t.Errorf("%q is found where it is not", found)
	}
}
