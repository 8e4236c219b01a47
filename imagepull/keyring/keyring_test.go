package keyring

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// secret is a dockerconfigjson with a user for each registry, named for the secret and
// numbered.
func secret(name string, registries ...string) *corev1.Secret {
	auths := map[string]any{}
	for i, r := range registries {
		auths[r] = map[string]string{"username": fmt.Sprintf("%s%d", name, i+1), "password": "p"}
	}
	return configSecret(name, map[string]any{"auths": auths})
}

func configSecret(name string, config any) *corev1.Secret {
	content, err := json.Marshal(config)
	if err != nil {
		panic(err)
	}
	return rawSecret(name, corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey, string(content))
}

func rawSecret(name string, of corev1.SecretType, key, content string) *corev1.Secret {
	s := &corev1.Secret{Type: of, Data: map[string][]byte{key: []byte(content)}}
	s.Namespace, s.Name = "shop", name
	return s
}

func entriesOf(t *testing.T, secrets ...*corev1.Secret) []Entries {
	t.Helper()
	var all []Entries
	for _, s := range secrets {
		e, err := FromSecret(s)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// digest is one that an image may have.
const digest = "sha256:0123456789012345678901234567890123456789012345678901234567890123"

func users(credentials []engineapi.Credential) string {
	var names []string
	for _, c := range credentials {
		names = append(names, c.Username)
	}
	return strings.Join(names, " ")
}

func TestOneRegistry(t *testing.T) {
	const some = "registry.example.com"
	tests := map[string]struct {
		registry, image string
		want            bool
	}{
		"a host":                            {some, some + "/app", true},
		"a host and an image with a tag":    {some, some + "/app:1.2", true},
		"a host and an image with a digest": {some, some + "/app@" + digest, true},
		"a host and an image with both":     {some, some + "/app:1.2@" + digest, true},
		"another host":                      {some, "other.example.com/app", false},
		"a host that ends the same":         {"example.com", some + "/app", false},
		"upper case is another host":        {"Registry.example.com", some + "/app", false},
		"https":                             {"https://" + some, some + "/app", true},
		"http":                              {"http://" + some, some + "/app", true},
		"another scheme is a host with a wrong port": {"ftp://" + some, some + "/app", false},
		"a slash at the end":                         {some + "/", some + "/app", true},
		"version 1 of the API":                       {"https://" + some + "/v1/", some + "/app", true},
		"version 2 of the API":                       {"https://" + some + "/v2/", some + "/app", true},
		"a version without a slash is a path":        {"https://" + some + "/v2", some + "/app", false},
		"a version in front of a path":               {some + "/v2/shop", some + "/shop/app", true},
		"version 3 is a path":                        {some + "/v3/", some + "/app", false},
		"a user in the URL is no part of the name":   {"https://me@" + some, some + "/app", true},
		"a query is no part of the name":             {some + "?account=me", some + "/app", true},

		"a path that is the image's":                 {some + "/shop", some + "/shop/app", true},
		"a path that is not":                         {some + "/shop", some + "/other/app", false},
		"a path is cut anywhere":                     {some + "/shop", some + "/shopping/app", true},
		"a path with a slash at the end is not":      {some + "/shop/", some + "/shopping/app", false},
		"a path that is longer than the image's":     {some + "/shop/app/x", some + "/shop/app", false},
		"a path that is the whole image":             {some + "/shop/app", some + "/shop/app:1", true},
		"a tag is no part of a path":                 {some + "/shop/app:1", some + "/shop/app:1", false},
		"a star in a path is a star":                 {some + "/*", some + "/app", false},
		"a path with an escape is the path it means": {some + "/sh%6Fp", some + "/shop/app", true},
		"a path with an escaped percent is nothing":  {some + "/sh%25p", some + "/sh%25p/app", false},

		"a port":                               {some + ":5000", some + ":5000/app", true},
		"a port that the image has not":        {some + ":5000", some + "/app", false},
		"no port, and an image that has one":   {some, some + ":5000/app", false},
		"another port":                         {some + ":5000", some + ":5001/app", false},
		"the port of https is a port":          {some + ":443", some + "/app", false},
		"a star is no port":                    {some + ":*", some + ":5000/app", false},
		"an address of IP 4":                   {"192.0.2.1:5000", "192.0.2.1:5000/app", true},
		"an address of IP 6 with a port":       {"[2001:db8::1]:5000", "[2001:db8::1]:5000/app", true},
		"an address of IP 6 without is a set":  {"[2001:db8::1]", "[2001:db8::1]/app", false},
		"localhost":                            {"localhost:5000", "localhost:5000/app", true},
		"localhost without a port":             {"localhost", "localhost/app", true},
		"a star for a label":                   {"*.example.com", some + "/app", true},
		"a star for a part of a label":         {"reg*.example.com", some + "/app", true},
		"a star in another label":              {"registry.*.com", some + "/app", true},
		"stars everywhere":                     {"*.*.*", some + "/app", true},
		"a star is one label":                  {"*.example.com", "a.b.example.com/app", false},
		"a star is not none":                   {"*.example.com", "example.com/app", false},
		"two stars in a label are one label":   {"**.com", some + "/app", false},
		"a question mark begins a query":       {"registry.exampl?.com", some + "/app", false},
		"a set is no host name":                {"r[e]gistry.example.com", some + "/app", false},
		"a star with a port":                   {"*.example.com:5000", some + ":5000/app", true},
		"a star with a path":                   {"*.example.com/shop", some + "/shop/app", true},
		"a star and one label":                 {"*", "localhost/app", true},
		"a star is not any host":               {"*", some + "/app", false},
		"nothing":                              {"", some + "/app", false},
		"a path without a host":                {"/shop", "shop/app", false},
		"space around it is no host":           {" " + some, some + "/app", false},
		"a port that is no number":             {some + ":http", some + ":http/app", false},
		"an image that cannot be parsed":       {some, some + ":http/app", false},
		"an image that is nothing":             {"docker.io", "", false},
		"an image that is an ID":               {"docker.io", strings.TrimPrefix(digest, "sha256:"), false},
		"an image of capitals is a host's":     {"Registry", "Registry/app", true},
		"a host of one label is a path on Hub": {"registry", "registry/app", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			// Some of these registries are passed over, which is another test's matter.
			e, _ := FromSecret(secret("user", tt.registry))
			if got := len(New(e).Lookup(tt.image)) > 0; got != tt.want {
				t.Errorf("registry %q, image %q: got match %t, want %t", tt.registry, tt.image, got, tt.want)
			}
		})
	}
}

func TestDockerHub(t *testing.T) {
	ours := map[string]bool{ // for kubelet, these are on Docker Hub
		"nginx": true, "nginx:1.27": true, "shop/app": true, "library/nginx": true, "docker.io/nginx": true,
		"docker.io/shop/app": true, "index.docker.io/shop/app": true, "nginx@" + digest: true,
		"registry.example.com/nginx": false, "registry:5000/nginx": false, "registry-1.docker.io/library/nginx": false,
		"localhost/nginx": true, "localhost:5000/nginx": false,
	}
	for _, registry := range []string{"https://index.docker.io/v1/", "index.docker.io", "http://index.docker.io/v2/", "index.docker.io/"} {
		k := New(entriesOf(t, secret("user", registry))...)
		for image, want := range ours {
			if got := len(k.Lookup(image)) > 0; got != want {
				t.Errorf("registry %q, image %q: got match %t, want %t", registry, image, got, want)
			}
		}
	}
	tests := map[string]struct {
		registries []string
		image      string
		want       string
	}{
		"docker.io":                                     {[]string{"docker.io"}, "nginx", "user1"},
		"docker.io with a version":                      {[]string{"https://docker.io/v1/"}, "nginx", "user1"},
		"docker.io with a path":                         {[]string{"docker.io/library"}, "nginx", "user1"},
		"docker.io with a path that is another's":       {[]string{"docker.io/shop"}, "nginx", ""},
		"docker.io takes precedence over its old name":  {[]string{"index.docker.io", "docker.io"}, "nginx", "user2"},
		"the old name serves what docker.io does not":   {[]string{"index.docker.io", "docker.io/shop"}, "nginx", "user1"},
		"the old name with a path is no name":           {[]string{"index.docker.io/library"}, "nginx", ""},
		"the old name in a pattern is no name":          {[]string{"*.docker.io"}, "nginx", ""},
		"the old name without a slash is no name":       {[]string{"https://index.docker.io/v1"}, "nginx", ""},
		"the host that serves the images has no part":   {[]string{"registry-1.docker.io"}, "nginx", ""},
		"the host that serves the images, in the image": {[]string{"registry-1.docker.io"}, "registry-1.docker.io/library/nginx", "user1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := users(New(entriesOf(t, secret("user", tt.registries...))...).Lookup(tt.image)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestOrder(t *testing.T) {
	const image = "registry.example.com/shop/app:1"
	tests := map[string]struct {
		secrets []*corev1.Secret
		node    []string
		want    string
	}{
		"a longer path comes first": {
			secrets: []*corev1.Secret{secret("a", "registry.example.com", "registry.example.com/shop/app", "registry.example.com/shop")},
			want:    "a2 a3 a1",
		},
		"a longer path comes first, whichever secret it is in": {
			secrets: []*corev1.Secret{secret("a", "registry.example.com"), secret("b", "registry.example.com/shop")},
			want:    "b1 a1",
		},
		"a name comes before a pattern": {
			secrets: []*corev1.Secret{secret("a", "*.example.com"), secret("b", "registry.example.com")},
			want:    "b1 a1",
		},
		"a pattern with a path comes behind a name without": {
			secrets: []*corev1.Secret{secret("a", "*.example.com/shop"), secret("b", "registry.example.com")},
			want:    "b1 a1",
		},
		"of the same registry, the first secret comes first": {
			secrets: []*corev1.Secret{secret("b", "registry.example.com"), secret("a", "https://registry.example.com/v2/")},
			want:    "b1 a1",
		},
		"the node comes last, whatever it says": {
			secrets: []*corev1.Secret{secret("a", "*.example.com")},
			node:    []string{"registry.example.com/shop/app"},
			want:    "a1 node1",
		},
		"the node, where no secret matches": {
			secrets: []*corev1.Secret{secret("a", "other.example.com")},
			node:    []string{"registry.example.com"},
			want:    "node1",
		},
		"the node alone": {
			node: []string{"registry.example.com"},
			want: "node1",
		},
		"nothing": {},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			k := New(entriesOf(t, tt.secrets...)...)
			if tt.node != nil {
				k = Union(k, New(entriesOf(t, secret("node", tt.node...))...))
			}
			for range 20 { // not the order of a map
				if got := users(k.Lookup(image)); got != tt.want {
					t.Fatalf("got %q, want %q", got, tt.want)
				}
			}
		})
	}
}

func TestManySecretsForOneRegistryKeepTheirOrder(t *testing.T) {
	var secrets []*corev1.Secret
	var byName, byPattern []string
	for i := range 60 {
		name := fmt.Sprintf("%c%d", 'z'-i%26, i)
		if i*i%7 < 3 {
			secrets = append(secrets, secret(name, "r.example.com"))
			byName = append(byName, name+"1")
		} else {
			secrets = append(secrets, secret(name, "*.example.com"))
			byPattern = append(byPattern, name+"1")
		}
	}
	want := strings.Join(slices.Concat(byName, byPattern), " ")
	if got := users(New(entriesOf(t, secrets...)...).Lookup("r.example.com/app")); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestEachKeyringFallsBackToDockerHubByItself(t *testing.T) {
	k := Union(New(entriesOf(t, secret("a", "index.docker.io"))...), New(entriesOf(t, secret("node", "docker.io"))...))
	if got := users(k.Lookup("nginx")); got != "a1 node1" {
		t.Errorf("got %q, want a1 node1", got)
	}
}

func TestEqualCredentialsAreTriedOnce(t *testing.T) {
	same := func(name, registry, password string) *corev1.Secret {
		return configSecret(name, map[string]any{"auths": map[string]any{registry: map[string]string{"username": "me", "password": password}}})
	}
	k := Union(
		New(entriesOf(t, same("a", "*.example.com", "p"), same("b", "registry.example.com", "p"), same("c", "*.example.com", "q"))...),
		New(entriesOf(t, same("node", "registry.example.com", "p"))...),
	)
	var got []string
	for _, c := range k.Lookup("registry.example.com/app") {
		got = append(got, c.Source+" "+c.Password)
	}
	if want := []string{"secret shop/b p", "secret shop/c q"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestKeyringsPrintAsACount(t *testing.T) {
	auth := base64.StdEncoding.EncodeToString([]byte("me:hunter2"))
	entries := entriesOf(t, configSecret("a", map[string]any{"auths": map[string]any{"r.example.com": map[string]string{"auth": auth, "identitytoken": "hunter3"}}}))
	k := New(entries...)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		for _, v := range []any{k, &k, entries[0], &entries[0], entries, struct{ K Keyring }{k}} {
			if s := fmt.Sprintf(verb, v); strings.Contains(s, "hunter") || strings.Contains(s, "68756e746572") || strings.Contains(s, auth) {
				t.Errorf("%s of %T: %s", verb, v, s)
			}
		}
	}
}
