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
		"with a token":    func(g *images.Registry) { g.UseTokens(time.Minute, false) },
		// It has run out when the second layer is asked for.
		"with a token that lives a second":           func(g *images.Registry) { g.UseTokens(time.Second, false); g.SetRate(2 << 20) },
		"with a token of which nobody says how long": func(g *images.Registry) { g.UseTokens(time.Second, true); g.SetRate(2 << 20) },
	}
	for name, prepare := range ways {
		t.Run(name, func(t *testing.T) {
			once(t, func(r *rig) {
				reference, _ := r.push("private", "1", r.ballast(1, 3<<20, 1<<20)...)
				r.registry.Require("private", "me", secret+"me")
				r.registry.Require("other", "you", secret+"you")
				prepare(r.registry)
				wrong := engineapi.Credential{Username: "me", Password: secret + "?", Source: "secret default/old"}
				you, me := credential("you", "secret default/you"), credential("me", "secret default/me")
				r.refused(r.engine, engineapi.Unauthorized, engineapi.Request{Image: reference})
				failure := r.refused(r.engine, engineapi.Unauthorized, engineapi.Request{Image: reference, Credentials: []engineapi.Credential{wrong, you}})
				r.says(failure, "secret default/old", "secret default/you")
				r.pull(reference, wrong, you, me)
				// What is there is good enough for those who may not see it.
				r.pull(reference, wrong)
			})
		})
	}
}

// TestManyLayers take no more connections and tokens than CRI of containerd 1.6: they are used again.
func TestManyLayers(t *testing.T) {
	once(t, func(r *rig) {
		const layers, connections, tokens = 40, 8, 2
		r.registry.UseTokens(5*time.Minute, false)
		r.registry.Require("app", "me", secret+"me")
		var sizes [layers]int64
		for i := range sizes {
			sizes[i] = 1000
		}
		reference, _ := r.push("app", "1", r.ballast(1, sizes[:]...)...)
		r.pull(reference, credential("me", "secret default/me"))
		asked := 0
		for _, request := range r.registry.Requests() {
			if request.Path == "/token" {
				asked++
			}
		}
		if n := r.registry.Connections(); n > connections || asked > tokens {
			r.Errorf("%d layers took %d connections and %d tokens", layers, n, asked)
		}
	})
}

// TestMirror is asked in place of a registry that cannot be reached.
func TestMirror(t *testing.T) {
	once(t, func(r *rig) {
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
		_, err := r.likeCRI().Pull(r.Context(), engineapi.Request{Image: host + "/app:1"})
		r.must(err)
	})
}

// TestOnThisMachine needs no word about a registry that speaks plain HTTP.
func TestOnThisMachine(t *testing.T) {
	once(t, func(r *rig) {
		reference, _ := r.push("app", "1", r.ballast(5, 1000)...)
		_, err := r.newEngine(func(o *engine.Options) { o.HostsDir = r.TempDir() }).Pull(r.Context(), engineapi.Request{Image: reference})
		r.must(err)
	})
}

// TestTLS takes the authority's certificate, and its error has where to put it.
func TestTLS(t *testing.T) {
	once(t, func(r *rig) {
		secure, err := images.ServeTLS("127.0.0.1:0")
		r.must(err)
		r.Cleanup(func() { _ = secure.Close() })
		r.registry = secure
		reference, _ := r.push("app", "1", r.ballast(4, 100<<10)...)
		// What is on this machine is trusted by itself, unless it is configured.
		folder := filepath.Join(r.hosts, secure.Addr())
		r.must(os.MkdirAll(folder, 0o755))
		r.server(secure.URL())
		failure := r.refused(r.engine, engineapi.Untrusted, engineapi.Request{Image: reference})
		r.says(failure, filepath.Join(folder, "ca.crt"))
		r.must(secure.WriteHosts(r.hosts, secure.Addr()))
		r.pull(reference)
	})
}
