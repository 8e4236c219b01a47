package keyring

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// FuzzSecrets puts a password where one may stand, and anything around it: nothing
// panics, and neither errors nor what is printed have the password in it.
func FuzzSecrets(f *testing.F) {
	const password = "hunter2-4711"
	auth := base64.StdEncoding.EncodeToString([]byte("me:" + password))
	for _, content := range []string{
		`{"auths":{"r.example.com":{"username":"me","password":"PASSWORD"}}}`,
		`{"auths":{"*.example.com:5000/shop":{"auth":"AUTH","identitytoken":"PASSWORD"}}}`,
		`{"https://me:PASSWORD@index.docker.io/v1/":{"auth":"AUTH"}}`,
		`{"r.example.com":{"auth":"PASSWORD"}}`, `{"r.example.com":"PASSWORD"}`, `{"auths":{"r":PASSWORD}}`,
		`{"auths":"PASSWORD"}`, `{"auths":null}`, `PASSWORD`, `["AUTH"]`, ``, `{"[::1]:5000":{}}`, `{"%zz":{}}`,
	} {
		f.Add(content, "registry.example.com:5000/shop/app:1.2@"+digest)
		f.Add(content, "nginx")
	}
	f.Fuzz(func(t *testing.T, content, image string) {
		if strings.Contains(image, password) || strings.Contains(content, password) || strings.Contains(content, auth) {
			t.Skip("a password where none belongs")
		}
		content = strings.NewReplacer("PASSWORD", password, "AUTH", auth).Replace(content)
		for _, s := range []*corev1.Secret{
			rawSecret("a", corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey, content),
			rawSecret("a", corev1.SecretTypeDockercfg, corev1.DockerConfigKey, content),
		} {
			entries, err := FromSecret(s)
			k := Union(New(entries), New(entries, entries))
			found := k.Lookup(image)
			if s := fmt.Sprintf("%v %+v %#v %v %#v", err, entries, k, found, found); leaks(s, password, auth) {
				t.Errorf("the password is in %q", s)
			}
			if len(found) > len(entries) {
				t.Errorf("%d credentials of %d entries", len(found), len(entries))
			}
		}
	})
}

// leaks leaves out the registries' names: somebody who puts a password into one
// cannot be helped. See shown.
func leaks(s, password, auth string) bool {
	s = strings.TrimSpace(registryName.ReplaceAllString(s, ""))
	return strings.Contains(s, password) || strings.Contains(s, auth)
}

var registryName = regexp.MustCompile(`credential for "(\\.|[^"\\])*"`)
