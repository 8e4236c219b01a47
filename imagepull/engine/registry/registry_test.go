package registry

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

func TestCredentialsInTurn(t *testing.T) {
	denied, away := docker.ErrInvalidAuthorization, errors.New("away")
	tests := map[string]struct {
		answers []error // for each credential
		want    error
		asked   int
	}{
		"the first credential is accepted":           {[]error{nil, nil}, nil, 1},
		"the second credential is accepted":          {[]error{denied, nil}, nil, 2},
		"no credential is accepted":                  {[]error{denied, denied}, denied, 2},
		"the first credential gets 404":              {[]error{errdefs.ErrNotFound, nil}, nil, 2},
		"a failure of the connection is not retried": {[]error{away, nil}, away, 1},
		"there are no credentials":                   {[]error{}, denied, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := &Client{
				credentials: make([]engineapi.Credential, len(tt.answers)),
				hosts:       func(docker.AuthorizerOpt) docker.RegistryHosts { return nil },
			}
			asked := 0
			err := r.With(func(remotes.Resolver) error {
				asked++
				if len(tt.answers) == 0 {
					return denied
				}
				return tt.answers[r.tried]
			})
			if !errors.Is(err, tt.want) || asked != tt.asked {
				t.Errorf("asked %d times, got %v", asked, err)
			}
			if tt.want == nil {
				again := 0
				_ = r.With(func(remotes.Resolver) error { again++; return nil })
				if again != 1 || tt.answers[r.tried] != nil {
					t.Error("the one that was let in is not used any more")
				}
			}
		})
	}
}

func TestWhatIsPresented(t *testing.T) {
	tests := map[string]struct {
		credential   engineapi.Credential
		user, secret string
	}{
		"a password":                {engineapi.Credential{Username: "me", Password: "pw"}, "me", "pw"},
		"a token":                   {engineapi.Credential{Username: "0000", Password: "x", IdentityToken: "token"}, "", "token"},
		"an anonymous credential":   {engineapi.Credential{}, "", ""},
		"a password without a user": {engineapi.Credential{Password: "pw"}, "", ""}, // containerd would take it for a token
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := &Client{credentials: []engineapi.Credential{tt.credential}}
			user, secret, err := r.credential()("any.example.com")
			if err != nil || user != tt.user || secret != tt.secret {
				t.Errorf("got %q, %q, %v", user, secret, err)
			}
		})
	}
}

// TestEchoedCredential is not repeated: a pod's status is read by more people than its Secrets.
func TestEchoedCredential(t *testing.T) {
	r := &Client{credentials: []engineapi.Credential{{Username: "me", Password: "hunter2"}, {IdentityToken: "token"}}}
	got := r.Plain(errors.New("refused: Authorization: Basic bWU6aHVudGVyMg==, hunter2, token"))
	if want := `"refused: Authorization: Basic …, …, …"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestCredentialIsNotPrinted(t *testing.T) {
	c := engineapi.Credential{Username: "me", Password: "hunter2", IdentityToken: "token", Source: "secret a/b"}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x"} {
		if got := fmt.Sprintf(format, c); got != "secret a/b" {
			t.Errorf("%s prints %s", format, got)
		}
	}
}

// TestTypeOfTheManifest decides whether containerd can pull it. What comes as something else is not looked for among
// the blobs, where it is missing.
func TestTypeOfTheManifest(t *testing.T) {
	for kind, accepted := range map[string]bool{
		ocispec.MediaTypeImageManifest: true, ocispec.MediaTypeImageIndex + "; charset=utf-8": true,
		"application/json": false, "text/html": false, "text/plain": false, "application/vnd.oci.artifact.manifest.v1+json": false,
	} {
		t.Run(kind, func(t *testing.T) {
			c, _, _ := hostile(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", kind)
				w.Header().Set("Docker-Content-Digest", digest.FromString("{}").String())
				w.Header().Set("Content-Length", "2")
			})
			_, err := c.Resolve(t.Context())
			if (err == nil) != accepted {
				t.Fatal(err)
			}
			if accepted {
				return
			}
			got := c.Failure(err)
			if text := got.Error(); got.Reason != engineapi.Corrupt || !strings.Contains(text, kind) || !strings.Contains(text, c.Host()) {
				t.Errorf("got %s: %s", got.Reason, text)
			}
		})
	}
}
