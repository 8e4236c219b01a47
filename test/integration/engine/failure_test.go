package engine

import (
	"cmp"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/imagepull/engine"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/cluster/images"
	"github.com/edgehub-io/edgehub/test/internal/pulltest"
	"github.com/edgehub-io/edgehub/test/internal/smalldisk"
)

// TestRefusedNames cannot be pulled, ever.
func TestRefusedNames(t *testing.T) {
	each(t, func(r *rig) {
		for _, name := range []string{"", "app/Upper:1", "a:b:c", "x@sha256:abc"} {
			if failure := r.refused(r.engine, engineapi.InvalidImageName, engineapi.Request{Image: name}); !failure.Permanent {
				r.Errorf("%q may be tried again", name)
			}
		}
	})
}

// TestFailures each have a reason, and a line on what to do.
func TestFailures(t *testing.T) {
	answer := func(code int, header http.Header) func(*rig) {
		return func(r *rig) {
			r.registry.Fail(func(*http.Request) (int, http.Header, bool) { return code, header, true })
		}
	}
	tests := map[string]struct {
		prepare func(*rig)
		image   string // after the registry's address
		reason  engineapi.Reason
		says    string
	}{
		"no such tag":           {image: "/app:2", reason: engineapi.NotFound, says: "no such image"},
		"no such repository":    {image: "/nothing:1", reason: engineapi.NotFound, says: "check its name"},
		"no such digest":        {image: "/app@sha256:" + strings.Repeat("0", 64), reason: engineapi.NotFound, says: "no such image"},
		"refused without words": {prepare: answer(http.StatusForbidden, nil), reason: engineapi.Unauthorized, says: "no credentials"},
		"too many requests": {
			prepare: answer(http.StatusTooManyRequests, http.Header{"Retry-After": {"7"}}),
			reason:  engineapi.RegistryBusy, says: "429",
		},
		"a layer that is missing": {
			prepare: func(r *rig) {
				r.registry.Fail(func(q *http.Request) (int, http.Header, bool) {
					return http.StatusNotFound, nil, strings.Contains(q.URL.Path, "/blobs/")
				})
			},
			reason: engineapi.NotFound, says: "only part of it",
		},
		"in trouble": {prepare: answer(http.StatusInternalServerError, nil), reason: engineapi.RegistryBusy, says: "500"},
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
			each(t, func(r *rig) {
				_, _ = r.push("app", "1", r.ballast(1, 1000)...)
				image := r.registry.Addr() + cmp.Or(tt.image, "/app:1")
				if tt.prepare != nil {
					tt.prepare(r)
				}
				failure := r.refused(r.engine, tt.reason, engineapi.Request{Image: image})
				if text := failure.Error(); !strings.Contains(text, tt.says) || !strings.Contains(text, image) {
					r.Errorf("%q does not say %q, or of which image", text, tt.says)
				}
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

// server has the registry's images be asked for elsewhere.
func (r *rig) server(url string) {
	r.Helper()
	folder := filepath.Join(r.hosts, r.registry.Addr())
	r.must(os.WriteFile(filepath.Join(folder, "hosts.toml"), []byte("server = \""+url+"\"\n"), 0o644))
}

// TestWrongBytes from a registry are noticed, and do not stay.
func TestWrongBytes(t *testing.T) {
	each(t, func(r *rig) {
		layers := r.ballast(2, 300<<10)
		reference, _ := r.push("app", "1", layers...)
		target, err := url.Parse(r.registry.URL())
		r.must(err)
		proxy := &http.Server{Handler: &httputil.ReverseProxy{
			Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target) },
			ModifyResponse: func(response *http.Response) error {
				if strings.HasSuffix(response.Request.URL.Path, r.digest(layers[0]).String()) {
					response.Body = &flipped{body: response.Body}
				}
				return nil
			},
		}}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		r.must(err)
		go func() { _ = proxy.Serve(listener) }()
		r.Cleanup(func() { _ = proxy.Close(); http.DefaultTransport.(*http.Transport).CloseIdleConnections() })
		r.server("http://" + listener.Addr().String())
		r.refused(r.engine, engineapi.Corrupt, engineapi.Request{Image: reference})
		if n := r.blobBytes(layers...); n > r.size(layers...) {
			r.Errorf("%d bytes of wrong content were fetched within one pull", n)
		}
		r.must(r.registry.WriteHosts(r.hosts, r.registry.Addr()))
		r.pull(reference)
	})
}

// flipped changes the first byte of each read.
type flipped struct{ body io.ReadCloser }

func (f *flipped) Close() error { return f.body.Close() }

func (f *flipped) Read(p []byte) (int, error) {
	n, err := f.body.Read(p)
	if n > 0 {
		p[0] ^= 1
	}
	return n, err
}

// TestHungRegistry is given up on after a while without a byte, and what came before
// is kept.
func TestHungRegistry(t *testing.T) {
	each(t, func(r *rig) {
		layers := r.ballast(3, 2<<20)
		reference, _ := r.push("app", "1", layers...)
		r.registry.CutAfter(r.digest(layers[0]), 1<<20, images.Hang)
		e := r.newEngine(func(o *engine.Options) { o.Stall = 2 * time.Second })
		failure := r.refused(e, engineapi.Unreachable, engineapi.Request{Image: reference})
		if !strings.Contains(failure.Error(), "sent nothing") {
			r.Errorf("%q does not say what happened", failure.Error())
		}
		r.pull(reference)
		r.atMost(1.05, layers...)
	})
}

// TestContainerdAbsent is reported with the socket that is missing.
func TestContainerdAbsent(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "none.sock")
	e, err := engine.New(engine.Options{Address: socket})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	_, pulled := e.Pull(t.Context(), engineapi.Request{Image: "nginx"})
	_, held := e.Retained(t.Context())
	for what, err := range map[string]error{"pull": pulled, "held": held, "release": e.Release(t.Context(), "x")} {
		r := &rig{T: t}
		if failure := r.reason(err, engineapi.RuntimeUnavailable); !strings.Contains(failure.Error(), socket) {
			t.Errorf("%s: %q does not name the socket", what, failure.Error())
		}
	}
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

			big := r.ballast(5, 20<<20)
			reference, _ := r.push("big", "1", big...)
			failure := r.refused(r.engine, engineapi.NoSpace, engineapi.Request{Image: reference})
			if n := r.blobBytes(big...); n > 0 {
				r.Errorf("%d bytes were fetched that have no room", n)
			}
			for _, words := range []string{"94 MB", "67 MB are free", disk} {
				if !strings.Contains(failure.Error(), words) {
					r.Errorf("%q does not say %s", failure.Error(), words)
				}
			}

			small := r.ballast(6, 5<<20)
			reference, _ = r.push("small", "1", small...)
			frugal := r.newEngine(func(o *engine.Options) { o.MinFree = 70 })
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
