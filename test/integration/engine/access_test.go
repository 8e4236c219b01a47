package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/imagepull/engine"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/test/cluster/images"
)

func credential(user, source string) engineapi.Credential {
	return engineapi.Credential{Username: user, Password: secret + user, Source: source}
}

// TestPrivate is pulled with the one of several credentials that is let in.
func TestPrivate(t *testing.T) {
	ways := map[string]func(*images.Registry){
		"with a password": func(*images.Registry) {},
		"with a token":    func(g *images.Registry) { g.UseTokens(time.Minute) },
		// It has run out when the second layer is asked for.
		"with a token that lives a second": func(g *images.Registry) { g.UseTokens(time.Second); g.SetRate(2 << 20) },
	}
	for name, prepare := range ways {
		t.Run(name, func(t *testing.T) {
			each(t, func(r *rig) {
				reference, _ := r.push("private", "1", r.ballast(1, 3<<20, 1<<20)...)
				r.registry.Require("private", "me", secret+"me")
				r.registry.Require("other", "you", secret+"you")
				prepare(r.registry)
				wrong := engineapi.Credential{Username: "me", Password: secret + "?", Source: "secret default/old"}
				you, me := credential("you", "secret default/you"), credential("me", "secret default/me")
				r.refused(r.engine, engineapi.Unauthorized, engineapi.Request{Image: reference})
				failure := r.refused(r.engine, engineapi.Unauthorized, engineapi.Request{Image: reference, Credentials: []engineapi.Credential{wrong, you}})
				for _, source := range []string{"secret default/old", "secret default/you"} {
					if !strings.Contains(failure.Error(), source) {
						r.Errorf("%q does not name %s", failure.Error(), source)
					}
				}
				r.pull(reference, wrong, you, me)
				// What is there is good enough for those who may not see it.
				r.pull(reference, wrong)
			})
		})
	}
}

// TestMirror is asked in place of a registry that cannot be reached.
func TestMirror(t *testing.T) {
	each(t, func(r *rig) {
		layers := r.ballast(2, 1<<20)
		_, _ = r.push("app", "1", layers...)
		r.must(r.registry.WriteHosts(r.hosts, "registry.invalid"))
		got := r.pull("registry.invalid/app:1")
		if n := r.blobBytes(layers...); n != r.size(layers...) {
			r.Errorf("the mirror has sent %d bytes", n)
		}
		if got.Name != "registry.invalid/app:1" {
			r.Errorf("got %+v", got)
		}
		r.showsPinned("registry.invalid/app:1", true)
	})
}

// TestHostsOfCRI are read where CRI is configured to look.
func TestHostsOfCRI(t *testing.T) {
	each(t, func(r *rig) {
		_, _ = r.push("app", "1", r.ballast(3, 1000)...)
		host := strings.ToLower("mirror-" + r.registry.Addr()[len("127.0.0.1:"):] + ".invalid")
		r.must(r.registry.WriteHosts(r.containerd.HostsDir(), host))
		e := r.newEngine(func(o *engine.Options) { o.HostsDir = "" })
		_, err := e.Pull(r.Context(), engineapi.Request{Image: host + "/app:1"})
		r.must(err)
	})
}

// TestOnThisMachine needs no word about a registry that speaks plain HTTP.
func TestOnThisMachine(t *testing.T) {
	each(t, func(r *rig) {
		reference, _ := r.push("app", "1", r.ballast(5, 1000)...)
		e := r.newEngine(func(o *engine.Options) { o.HostsDir = r.TempDir() })
		_, err := e.Pull(r.Context(), engineapi.Request{Image: reference})
		r.must(err)
	})
}

// TestTLS takes the authority's certificate, and its error has where to put it.
func TestTLS(t *testing.T) {
	each(t, func(r *rig) {
		secure, err := images.ServeTLS("127.0.0.1:0")
		r.must(err)
		r.Cleanup(func() { _ = secure.Close() })
		image, err := images.New(images.Platform("amd64"), r.ballast(4, 100<<10)...)
		r.must(err)
		r.must(secure.Push(r.Context(), "app", "1", image))
		reference := secure.Reference("app", "1")
		// What is on this machine is trusted by itself, unless it is configured.
		folder := filepath.Join(r.hosts, secure.Addr())
		r.must(os.MkdirAll(folder, 0o755))
		r.must(os.WriteFile(filepath.Join(folder, "hosts.toml"), []byte("server = \""+secure.URL()+"\"\n"), 0o644))
		failure := r.refused(r.engine, engineapi.Untrusted, engineapi.Request{Image: reference})
		if !strings.Contains(failure.Error(), filepath.Join(folder, "ca.crt")) {
			r.Errorf("%q does not say where the certificate belongs", failure.Error())
		}
		r.must(secure.WriteHosts(r.hosts, secure.Addr()))
		r.pull(reference)
	})
}
