package engine

import (
	"cmp"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/edgehub-io/edgehub/imagepull/engine"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/cluster/images"
	"github.com/edgehub-io/edgehub/test/internal/pulltest"
	"github.com/edgehub-io/edgehub/test/internal/smalldisk"
)

// TestFailures each have a reason, and a line on what to do.
func TestFailures(t *testing.T) {
	always := func(code int, header ...string) func(*rig) {
		return func(r *rig) { r.registry.Answer("", images.Say(code, "", header...)) }
	}
	tests := map[string]struct {
		prepare func(*rig)
		image   string // after the registry's address
		reason  engineapi.Reason
		says    string
	}{
		"no such tag":           {image: "/app:2", reason: engineapi.NotFound, says: "no such image"},
		"no such digest":        {image: "/app@sha256:" + strings.Repeat("0", 64), reason: engineapi.NotFound, says: "check its name"},
		"refused without words": {prepare: always(http.StatusForbidden), reason: engineapi.Unauthorized, says: "no credentials"},
		"too many requests":     {prepare: always(http.StatusTooManyRequests, "Retry-After", "7"), reason: engineapi.RegistryBusy, says: "429"},
		"a layer that is missing": {
			prepare: func(r *rig) { r.registry.Answer("/blobs/", http.NotFound) },
			reason:  engineapi.NotFound, says: "only part of it",
		},
		"a manifest of another type": {
			prepare: func(r *rig) {
				r.registry.Answer("/manifests/", images.Say(http.StatusOK, "{}", "Content-Type", "application/json"))
			},
			reason: engineapi.Corrupt, says: `Content-Type "application/json"`,
		},
		"in trouble": {prepare: always(http.StatusInternalServerError), reason: engineapi.RegistryBusy, says: "500"},
		"down":       {prepare: func(r *rig) { r.must(r.registry.Down()) }, reason: engineapi.Unreachable, says: "connection refused"},
		"speaks plain HTTP": {
			prepare: func(r *rig) { r.server("https://" + r.registry.Addr()) },
			reason:  engineapi.Unreachable, says: "hosts.toml",
		},
		"not known to DNS": {
			prepare: func(r *rig) { r.server("https://registry.invalid") },
			reason:  engineapi.Unreachable, says: "DNS",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			once(t, func(r *rig) {
				_, _ = r.push("app", "1", r.ballast(1, 1000)...)
				image := r.registry.Addr() + cmp.Or(tt.image, "/app:1")
				if tt.prepare != nil {
					tt.prepare(r)
				}
				failure := r.refused(r.engine, tt.reason, engineapi.Request{Image: image})
				r.says(failure, tt.says, image)
				if failure.Permanent {
					r.Error("it is not to be tried again")
				}
				if tt.says == "429" && failure.RetryAfter != 7*time.Second {
					r.Errorf("it is to be tried again after %v", failure.RetryAfter)
				}
				// It stands twice in hosts.toml, and may be asked in two ways.
				if n := len(r.registry.Requests()); n > 4 && tt.says != "only part of it" {
					r.Errorf("the registry was asked %d times", n)
				}
			})
		})
	}
}

// TestNothingHostileIsLogged is for the lines below the error, of which imagepull/engine/registry has more.
func TestNothingHostileIsLogged(t *testing.T) {
	for name, code := range map[string]int{"refused": http.StatusForbidden, "a teapot": http.StatusTeapot} {
		t.Run(name, func(t *testing.T) {
			once(t, func(r *rig) {
				r.registry.Answer("", images.Say(code, strings.Repeat("\x1b[2J\x1b]0;owned\x07\r\nall is well\u202e\n", 20_000)))
				_, err := r.engine.Pull(r.Context(), engineapi.Request{Image: r.registry.Reference("app", "1")})
				if err == nil {
					r.Fatal("it was pulled")
				}
				for line := range strings.SplitSeq(err.Error()+"\n"+strings.TrimSpace(r.log.String()), "\n") {
					if len(line) > 4096 || strings.IndexFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
						r.Errorf("%d bytes: %.200q", len(line), line)
					}
				}
			})
		})
	}
}

// server has the registry's images be asked for elsewhere.
func (r *rig) server(url string) {
	r.Helper()
	folder := filepath.Join(r.hosts, r.registry.Addr())
	r.must(os.WriteFile(filepath.Join(folder, "hosts.toml"), []byte("server = \""+url+"\"\n"), 0o644))
}

// TestWrongBytes from a registry are noticed, and do not stay.
func TestWrongBytes(t *testing.T) {
	once(t, func(r *rig) {
		layers := r.ballast(2, 300<<10)
		reference, _ := r.push("app", "1", layers...)
		layer := r.digest(layers[0]).String()
		r.registry.Answer(layer, func(w http.ResponseWriter, req *http.Request) { r.registry.Respond(flipping{w}, req) })
		r.refused(r.engine, engineapi.Corrupt, engineapi.Request{Image: reference})
		if n := r.blobBytes(layers...); n > r.size(layers...) {
			r.Errorf("%d bytes of wrong content were fetched within one pull", n)
		}
		r.registry.Answer(layer, nil)
		r.pull(reference)
	})
}

// flipping changes the first byte of each write.
type flipping struct{ http.ResponseWriter }

func (f flipping) Write(p []byte) (int, error) {
	p = slices.Clone(p)
	p[0] ^= 1
	return f.ResponseWriter.Write(p)
}

// TestContainerdRestarted amid a pull ends that, and the same engine goes on with the
// next.
func TestContainerdRestarted(t *testing.T) {
	eachAlone(t, func(r *rig) {
		layers := r.ballast(4, 16<<20)
		reference, _ := r.push("app", "1", layers...)
		r.registry.SetRate(16 << 20)
		done := r.pullUntil(r.Context(), r.engine, reference, layers[0], 8<<20)
		r.must(r.containerd.Kill())
		r.reason(<-done, engineapi.RuntimeUnavailable)
		r.refused(r.engine, engineapi.RuntimeUnavailable, engineapi.Request{Image: reference})
		r.must(r.containerd.Start(r.Context()))
		r.pullOnceBack(r.engine, reference)
		r.atMost(1.05, layers...)
		r.showsPinned(reference, true)
	})
}

// TestNoRoom is found out before a layer is fetched, or by containerd.
func TestNoRoom(t *testing.T) {
	cluster.NeedRoot(t)
	for version, d := range daemons {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			disk := smalldisk.Mount(t, 64)
			r := newRig(t, version, pulltest.StartContainerd(t, cluster.ContainerdOptions{Version: d.version, Dir: disk, Snapshotter: "native"}))

			big := r.ballast(5, 40<<20)
			reference, _ := r.push("big", "1", big...)
			failure := r.refused(r.engine, engineapi.NoSpace, engineapi.Request{Image: reference})
			if n := r.blobBytes(big...); n > 0 {
				r.Errorf("%d bytes were fetched that have no room", n)
			}
			r.says(failure, "84 MB", "67 MB are free", disk)

			small := r.ballast(6, 5<<20)
			reference, _ = r.push("small", "1", small...)
			frugal := r.newEngine(func(o *engine.Options) { o.MinFree = 90 })
			r.refused(frugal, engineapi.NoSpace, engineapi.Request{Image: reference})

			// Somebody else takes the room while the layer comes in.
			r.registry.SetRate(64 << 10) // a minute for the rest, until the disk is full
			done := r.pullUntil(r.Context(), r.engine, reference, small[0], 256<<10)
			filler := filepath.Join(disk, "filler")
			_ = os.WriteFile(filler, make([]byte, 64<<20), 0o644) // it ends when the disk is full
			r.registry.SetRate(0)
			r.reason(<-done, engineapi.NoSpace)
			r.must(os.Remove(filler))
			r.pull(reference)
			r.atMost(1.1, small...) // what the disk did not take is lost
		})
	}
}
