package engine

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/test/cluster/images/hostile"
)

// TestAnswersWithoutEnd are not read to where they might end, nor waited for.
func TestAnswersWithoutEnd(t *testing.T) {
	const every = 900 * time.Millisecond
	token := func(answer http.HandlerFunc) func(*hostile.Registry, hostile.Descriptor) {
		return func(h *hostile.Registry, _ hostile.Descriptor) {
			h.Answer("/v2/", hostile.Challenge(h.URL()+"/token"))
			h.Answer("/token", answer)
		}
	}
	manifest := func(answer http.HandlerFunc) func(*hostile.Registry, hostile.Descriptor) {
		return func(h *hostile.Registry, _ hostile.Descriptor) {
			h.Answer("/manifests/", func(w http.ResponseWriter, req *http.Request) {
				w.Header().Set("Content-Type", hostile.Manifest)
				if req.Method == http.MethodGet { // without a digest in answers to HEAD, it has to be asked for
					answer(w, req)
				}
			})
		}
	}
	blob := func(answer http.HandlerFunc) func(*hostile.Registry, hostile.Descriptor) {
		return func(h *hostile.Registry, blob hostile.Descriptor) { h.Answer(blob.Digest, answer) }
	}
	tests := map[string]func(*hostile.Registry, hostile.Descriptor){
		"a token without an end":      token(hostile.Endless(`{"token":"`)),
		"a token a byte at a time":    token(hostile.Drip(1<<20, every)),
		"a token that never comes":    token(hostile.Silent),
		"a manifest without an end":   manifest(hostile.Endless(`{"x":"`)),
		"a manifest a byte at a time": manifest(hostile.Drip(1<<20, every)),
		"a layer a byte at a time":    blob(hostile.Drip(1<<20, every)),
		"a layer that never comes":    blob(hostile.Silent),
		"a refusal without an end": blob(func(w http.ResponseWriter, req *http.Request) {
			w.WriteHeader(http.StatusTeapot)
			hostile.Endless("{")(w, req)
		}),
		"a layer of another size": blob(hostile.Endless("")),
		"a layer a byte a connection": func(h *hostile.Registry, blob hostile.Descriptor) {
			h.Answer(blob.Digest, hostile.Crumbs(make([]byte, blob.Size)))
		},
		"a header of a megabyte": func(h *hostile.Registry, blob hostile.Descriptor) {
			h.Answer(blob.Digest, hostile.LargeHeader(1<<20, h.Truth))
		},
		"from one to the next": blob(hostile.Redirect("/v2/app/blobs/again")),
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			each(t, func(r *rig) {
				h := r.hostile()
				reference, layer, _ := r.image(h, r.ballast(1, 1<<20)[0])
				h.Answer("/again", hostile.Redirect("/v2/app/blobs/again"))
				prepare(h, layer)
				r.givesUp(r.impatient(), h, reference)
				if n := len(h.Requests()); n > 40 {
					r.Errorf("it took %d requests", n)
				}
			})
		})
	}
}

// TestSlowedDown is given up on, and what came before is kept.
func TestSlowedDown(t *testing.T) {
	each(t, func(r *rig) {
		h := r.hostile()
		reference, layer, content := r.image(h, r.ballast(1, 4<<20)[0])
		h.Answer(layer.Digest, hostile.Slowing(content, 3<<20, 100*time.Millisecond))
		if failure := r.givesUp(r.impatient(), h, reference); failure.Reason != engineapi.Unreachable {
			r.Errorf("the reason is %s", failure.Reason)
		}
		h.Answer(layer.Digest, nil)
		r.pull(reference)
		r.sentOnce(h, content)
	})
}

// sentOnce holds what the registry has sent against the image's only layer.
func (r *rig) sentOnce(h *hostile.Registry, content []byte) {
	r.Helper()
	r.Logf("the registry has sent %d bytes, with a layer of %d", h.Sent(), len(content))
	if h.Sent() > int64(len(content))*21/20+(64<<10) {
		r.Errorf("the registry has sent %d bytes for a layer of %d", h.Sent(), len(content))
	}
}

// TestSomebodyBetween answers for the registry when the rest of a layer is asked for.
// What came before is kept.
func TestSomebodyBetween(t *testing.T) {
	page := "<html><body>Please log in</body></html>" + strings.Repeat(" ", 20<<10)
	answers := map[string]http.HandlerFunc{
		"400":    hostile.Say(http.StatusBadRequest, page, "Content-Type", "text/html"),
		"407":    hostile.Say(http.StatusProxyAuthRequired, ""),
		"451":    hostile.Say(http.StatusUnavailableForLegalReasons, page),
		"a page": hostile.Say(http.StatusOK, page, "Content-Type", "text/html"),
		"a page without a length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, strings.Repeat(page, 5))
		},
		"the way to a page": hostile.Redirect("/login"),
		"another part":      hostile.Say(http.StatusPartialContent, page, "Content-Range", "bytes 0-20519/20520"),
		"a part of nothing": hostile.Say(http.StatusPartialContent, page),
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			each(t, func(r *rig) {
				h := r.hostile()
				h.Answer("/login", hostile.Say(http.StatusOK, page, "Content-Type", "text/html"))
				reference, layer, content := r.image(h, r.ballast(1, 4<<20)[0])
				cut := hostile.Breaking(content, 3<<20)
				h.Answer(layer.Digest, func(w http.ResponseWriter, req *http.Request) {
					h.Answer(layer.Digest, answer)
					cut(w, req)
				})
				r.givesUp(r.impatient(), h, reference)
				h.Answer(layer.Digest, nil)
				r.pull(reference)
				r.sentOnce(h, content)
			})
		})
	}
}
