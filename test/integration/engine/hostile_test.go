package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/test/cluster/images/hostile"
)

// TestURLsOfLayers are never asked: neither one that does not answer, nor one that only
// the node can reach.
func TestURLsOfLayers(t *testing.T) {
	each(t, func(r *rig) {
		h := r.hostile()
		var asked atomic.Int64
		inside, err := net.Listen("tcp", "127.0.0.1:0")
		r.must(err)
		r.Cleanup(func() { _ = inside.Close() })
		go func() { // it accepts, and is silent
			for {
				conn, err := inside.Accept()
				if err != nil {
					return
				}
				asked.Add(1)
				r.Cleanup(func() { _ = conn.Close() })
			}
		}()
		layer, _, diffID := r.layer(h, r.ballast(1, 1<<20)[0])
		layer.URLs = []string{"http://" + inside.Addr().String() + "/admin?delete=all"}
		h.Tag("1", h.Image([]hostile.Descriptor{layer}, []string{diffID}))
		ctx, cancel := context.WithTimeout(r.Context(), soon)
		defer cancel()
		_, err = r.engine.Pull(ctx, engineapi.Request{Image: h.Reference("app", "1")})
		r.must(err)
		if n := asked.Load(); n > 0 {
			r.Errorf("an address that only the image names was asked %d times", n)
		}
	})
}

// TestLayerHungElsewhere is being pulled from a registry that hangs, while CRI pulls
// another image that has it from a registry that does not.
func TestLayerHungElsewhere(t *testing.T) {
	ways := map[string]func(content []byte) http.HandlerFunc{
		"silent":              func([]byte) http.HandlerFunc { return hostile.Silent },
		"silent in the midst": func(content []byte) http.HandlerFunc { return hostile.Slowing(content, len(content)/2, time.Hour) },
		"a byte at a time": func(content []byte) http.HandlerFunc {
			return hostile.Slowing(content, len(content)/2, 100*time.Millisecond)
		},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			each(t, func(r *rig) {
				layers := r.ballast(1, 1<<20)
				h := r.hostile()
				bad, blob, content := r.image(h, layers[0])
				good, _ := r.push("app", "1", layers...)
				h.Answer(blob.Digest, way(content))
				ctx, cancel := context.WithCancel(r.Context())
				done := make(chan error, 1) // so that it can end when the test has failed
				go func() {
					_, err := r.engine.Pull(ctx, engineapi.Request{Image: bad})
					done <- err
				}()
				r.eventually(func() error {
					for _, request := range h.Requests() {
						if strings.Contains(request, blob.Digest) {
							return nil
						}
					}
					return fmt.Errorf("the layer was not asked for")
				})
				r.must(r.registry.WriteHosts(r.containerd.HostsDir(), r.registry.Addr()))
				pulling, stop := context.WithTimeout(ctx, soon)
				_, err := r.cri.PullImage(pulling, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: good}})
				stop()
				if err != nil {
					r.Errorf("CRI cannot pull another image meanwhile: %v", err)
				}
				cancel()
				if err := <-done; !errors.Is(err, context.Canceled) {
					r.Errorf("the pull that hangs ended with %v", err)
				}
			})
		})
	}
}

// TestLayerThatCRIFetchesForAnother is not waited for if that image gives it another size: it
// names the layer by its digest, and its registry sends something for as long as it likes.
func TestLayerThatCRIFetchesForAnother(t *testing.T) {
	const size, rate = 1 << 30, 512 << 10
	each(t, func(r *rig) {
		layers := r.ballast(1, 1<<20)
		h := r.hostile()
		blob, content, diffID := r.layer(h, layers[0])
		good, _ := r.push("app", "1", layers...)
		blob.Size = size
		h.Tag("1", h.Image([]hostile.Descriptor{blob}, []string{diffID}))
		h.Answer(blob.Digest, hostile.Trickle(size, content[:rate/10], time.Second/10))
		ctx, cancel := context.WithCancel(r.Context())
		done := make(chan struct{})
		r.Cleanup(func() { cancel(); <-done })
		go func() {
			defer close(done)
			_, _ = r.cri.PullImage(ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: h.Reference("app", "1")}})
		}()
		r.eventually(func() error {
			if h.Sent() < 3<<20 { // containerd writes a megabyte at once
				return fmt.Errorf("CRI has not begun with the layer")
			}
			return nil
		})
		pulling, stop := context.WithTimeout(ctx, soon)
		defer stop()
		if _, err := r.engine.Pull(pulling, engineapi.Request{Image: good}); err != nil {
			r.Errorf("the layer cannot be pulled meanwhile: %v", err)
		}
	})
}

// TestDocumentsThatLie are refused before their content is used.
func TestDocumentsThatLie(t *testing.T) {
	layer := func(text string, size int64) hostile.Descriptor {
		return hostile.Descriptor{MediaType: hostile.Layer, Digest: digestOf(text), Size: size}
	}
	layers := func(all ...hostile.Descriptor) func(*hostile.Registry) hostile.Descriptor {
		return func(h *hostile.Registry) hostile.Descriptor {
			var diffs []string
			for _, l := range all {
				diffs = append(diffs, l.Digest)
			}
			return h.Image(all, diffs)
		}
	}
	raw := func(mediaType, list string, element string, n int) func(*hostile.Registry) hostile.Descriptor {
		return func(h *hostile.Registry) hostile.Descriptor {
			config := h.PutJSON(hostile.Config, map[string]any{"rootfs": map[string]any{}})
			return h.PutJSON(mediaType, map[string]any{
				"schemaVersion": 2, "mediaType": mediaType, "config": config, list: json.RawMessage(repeat(element, n)),
			})
		}
	}
	duplicates := func(h *hostile.Registry) hostile.Descriptor {
		layer, all, diffs := h.Put(hostile.Layer, []byte("x")), []hostile.Descriptor{}, []string{}
		for range 20_000 {
			all, diffs = append(all, layer), append(diffs, layer.Digest)
		}
		return h.Image(all, diffs)
	}
	tests := map[string]func(*hostile.Registry) hostile.Descriptor{
		"a layer that overflows":         layers(layer("a", 3e18)),
		"a sum that overflows":           layers(layer("a", 1<<40), layer("b", -1<<50)),
		"many layers that overflow":      layers(layer("a", 1<<62), layer("b", 1<<62), layer("c", 1<<62)),
		"a layer of no size":             layers(layer("a", 0)),
		"a layer that is no digest":      layers(hostile.Descriptor{MediaType: hostile.Layer, Digest: "sha256:../../x", Size: 100}),
		"a child manifest of a terabyte": func(h *hostile.Registry) hostile.Descriptor { return h.Index(endless(h, hostile.Manifest, 1<<40)) },
		"a child manifest of no size":    func(h *hostile.Registry) hostile.Descriptor { return h.Index(endless(h, hostile.Manifest, 0)) },
		"a configuration of 256 MB": func(h *hostile.Registry) hostile.Descriptor {
			return h.Manifest(endless(h, hostile.Config, 256<<20), nil)
		},
		"a configuration of less than none":  func(h *hostile.Registry) hostile.Descriptor { return h.Manifest(endless(h, hostile.Config, -5), nil) },
		"indexes in indexes":                 nested,
		"20,000 times the same layer":        duplicates,
		"a million layers without a word":    raw(hostile.Manifest, "layers", "{}", 1_000_000),
		"a million manifests without a word": raw(hostile.Index, "manifests", "{}", 1_000_000),
	}
	for name, image := range tests {
		t.Run(name, func(t *testing.T) {
			each(t, func(r *rig) {
				h := r.hostile()
				h.Tag("1", image(h))
				h.Answer(digestOf("a"), hostile.Endless(""))
				start := time.Now()
				failure := r.givesUp(r.engine, h, h.Reference("app", "1"))
				if failure.Reason != engineapi.Corrupt {
					r.Errorf("the reason is %s", failure.Reason)
				}
				if n := len(h.Requests()); n > 20 {
					r.Errorf("it took %d requests", n)
				}
				if took := time.Since(start); took > 10*time.Second {
					r.Errorf("it took %v", took)
				}
			})
		})
	}
}

// endless is the descriptor of content without an end, with this size.
func endless(h *hostile.Registry, mediaType string, size int64) hostile.Descriptor {
	d := hostile.Descriptor{MediaType: mediaType, Digest: digestOf("endless"), Size: size}
	h.Answer(d.Digest, hostile.Endless(`{"x":"`))
	return d
}

func nested(h *hostile.Registry) hostile.Descriptor {
	d := h.Image(nil, nil)
	for range 100 {
		d = h.Index(d)
	}
	return d
}
