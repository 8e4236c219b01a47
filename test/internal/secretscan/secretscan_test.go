package secretscan_test

import (
	"encoding/base64"
	"encoding/hex"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/test/internal/secretscan"
)

// What is not there has to be looked for in the right way.
func TestFound(t *testing.T) {
	const user, password = "puller", "correct-horse-battery-staple"
	pair := user + ":" + password
	for name, text := range map[string]string{
		"in clear":             `msg="password is ` + password + `"`,
		"in base64":            "x" + base64.StdEncoding.EncodeToString([]byte(password)) + "x",
		"with the user":        base64.StdEncoding.EncodeToString([]byte(pair)),
		"with another user":    base64.StdEncoding.EncodeToString([]byte("m" + pair)),
		"with a third":         base64.StdEncoding.EncodeToString([]byte("me" + pair)),
		"for use in URLs":      base64.RawURLEncoding.EncodeToString([]byte(pair)),
		"in hexadecimal":       hex.EncodeToString([]byte(pair)),
		"as a secret holds it": (&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"auth": password}}).String(),
	} {
		if len(secretscan.Found(text, password)) == 0 {
			t.Errorf("%s, it is not found in %s", name, text)
		}
	}
	if found := secretscan.Found("pull-secret registry of user "+user, password); len(found) > 0 {
		t.Errorf("%q is found where it is not", found)
	}
	const odd = "\xff\xfe?>~planted~<?\xff"
	if len(secretscan.Found(base64.URLEncoding.EncodeToString([]byte(odd)), odd)) == 0 {
		t.Error("in URLs' own base64, it is not found")
	}
}
