package engine

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// hostileText clears a terminal, names its window and pretends to be a line of ours.
const hostileText = "\x1b[2J\x1b]0;owned\x07\r\nall is well\u202e\n"

// TestHostileTexts are what a registry sends so that whoever reads an error, an answer of
// the hub or its log is misled: no control character arrives there, and not much of it.
func TestHostileTexts(t *testing.T) {
	long := strings.Repeat(hostileText, 20_000)
	tests := map[string]http.HandlerFunc{
		"an error's body": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			_ = json.NewEncoder(w).Encode(map[string]any{"errors": []any{map[string]string{"code": "DENIED", "message": long}}})
		},
		"a body that is no JSON": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTeapot)
			_, _ = w.Write([]byte(long))
		},
		"the words of a status": sayStatus(http.StatusTeapot, ""),
		"of one that is busy":   sayStatus(http.StatusTooManyRequests, ""),
		"where its tokens are":  sayStatus(http.StatusUnauthorized, "WWW-Authenticate: Bearer realm=\"http://127.0.0.1:1/\x1b]0;owned\a"+strings.Repeat("a", 200_000)+"\"\r\n"),
		"platforms of an index": serveIndex(),
	}
	for name, handler := range tests {
		t.Run(name, func(t *testing.T) {
			each(t, func(r *rig) {
				server := httptest.NewServer(handler)
				defer server.Close()
				r.server(server.URL)
				_, err := r.engine.Pull(r.Context(), engineapi.Request{Image: r.registry.Addr() + "/app:1"})
				if err == nil {
					r.Fatal("it was pulled")
				}
				r.Logf("%.2000q", err)
				r.expectHarmless("the error", err.Error(), 1024)
				for line := range strings.SplitSeq(strings.TrimSpace(r.log.String()), "\n") {
					r.expectHarmless("a line of the log", line, 4096)
				}
			})
		})
	}
}

// expectHarmless fails if text is longer than that, or has what cannot be printed.
func (r *rig) expectHarmless(what, text string, most int) {
	r.Helper()
	if len(text) > most {
		r.Errorf("%s has %d bytes: %.200q", what, len(text), text)
	}
	if i := strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
		r.Errorf("%s has %q in it: %.200q", what, text[i:i+1], text[max(0, i-50):])
	}
}

// sayStatus answers with a status line that is long and hostile.
func sayStatus(code int, header string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, to, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer func() { _ = conn.Close() }() // whoever reads it has gone
		words := strings.ReplaceAll(strings.Repeat(strings.ReplaceAll(hostileText, "\r\n", " "), 10_000), "\n", " ")
		_ = writeStatus(to.Writer, code, words, header)
	}
}

func writeStatus(to *bufio.Writer, code int, words, header string) error {
	if _, err := fmt.Fprintf(to, "HTTP/1.1 %d %s\r\nContent-Length: 0\r\nConnection: close\r\n%s\r\n", code, words, header); err != nil {
		return err
	}
	return to.Flush()
}

// serveIndex has an index of many platforms, of which none is this one.
func serveIndex() http.HandlerFunc {
	index := ocispec.Index{MediaType: ocispec.MediaTypeImageIndex}
	index.SchemaVersion = 2
	for i := range 500 {
		index.Manifests = append(index.Manifests, ocispec.Descriptor{
			MediaType: ocispec.MediaTypeImageManifest, Size: 1000, Digest: digest.FromBytes(fmt.Append(nil, i)),
			Platform: &ocispec.Platform{OS: "plan9", Architecture: strings.Repeat(hostileText, 20)},
		})
	}
	raw, err := json.Marshal(index)
	if err != nil {
		panic(err) // strings and numbers only
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", index.MediaType)
		w.Header().Set("Content-Length", fmt.Sprint(len(raw)))
		w.Header().Set("Docker-Content-Digest", digest.FromBytes(raw).String())
		_, _ = w.Write(raw)
	}
}
