package registry

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engine/imagecontent"
)

// hostile is a registry that answers as it likes. counted is how many bytes of bodies it could send.
func hostile(t *testing.T, handler http.HandlerFunc) (c *Client, counted *atomic.Int64, requests *atomic.Int64) {
	t.Helper()
	counted, requests = &atomic.Int64{}, &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		handler(counting{w, counted}, r)
	}))
	t.Cleanup(server.Close)
	host, folder := strings.TrimPrefix(server.URL, "http://"), t.TempDir()
	dir := filepath.Join(folder, host)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(`server = "`+server.URL+`"`), 0o600); err != nil {
		t.Fatal(err)
	}
	w := NewTransports(NewLimiter(0), 200*time.Millisecond, func(int) {}, nil)
	t.Cleanup(w.Close)
	return New(t.Context(), host+"/app:1", []string{folder}, nil, w, Credentials{}), counted, requests
}

type counting struct {
	http.ResponseWriter
	sent *atomic.Int64
}

func (c counting) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.sent.Add(int64(n))
	return n, err
}

func (c counting) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// endless goes on with letters after begin.
func endless(begin string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		_, err := io.WriteString(w, begin)
		for sent := 0; err == nil && sent < 128<<20; sent += 64 << 10 { // where nobody stops it, the test fails, and not the machine
			_, err = w.Write(bytes.Repeat([]byte("x"), 64<<10))
		}
	}
}

// dripping sends a byte at a time, of as many as it has announced.
func dripping(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Length", fmt.Sprint(blobSize))
	for range blobSize {
		if _, err := w.Write([]byte(" ")); err != nil || http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-r.Context().Done():
			return
		}
	}
}

func silence(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

const blobSize = 1 << 20

// TestAnswersWithoutEnd are not read to where they might end, nor waited for, whatever is asked for: the bounds of
// budget and transport are those of every request.
func TestAnswersWithoutEnd(t *testing.T) {
	token := func(answer http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/token" {
				answer(w, r)
				return
			}
			w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+r.Host+`/token",service="x",scope="repository:app:pull"`)
			w.WriteHeader(http.StatusUnauthorized)
		}
	}
	manifest := func(answer http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
			if r.Method == http.MethodGet { // without a digest in answers to HEAD, it has to be asked for
				answer(w, r)
			}
		}
	}
	tests := map[string]struct {
		ask     func(*testing.T, *Client) error
		handler http.HandlerFunc
	}{
		"a token without an end":      {resolve, token(endless(`{"token":"`))},
		"a token a byte at a time":    {resolve, token(dripping)},
		"a token that never comes":    {resolve, token(silence)},
		"a manifest without an end":   {resolve, manifest(endless(`{"x":"`))},
		"a manifest a byte at a time": {resolve, manifest(dripping)},
		"a layer a byte at a time":    {fetch, dripping},
		"a layer that never comes":    {fetch, silence},
		"a layer of another size":     {fetch, endless("")},
		"a refusal without an end": {fetch, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusTeapot)
			endless("{")(w, r)
		}},
		"a header of a megabyte": {fetch, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Large", strings.Repeat("x", 1<<20))
			w.Header().Set("Content-Length", fmt.Sprint(blobSize))
			_, _ = w.Write(make([]byte, blobSize))
		}},
		"from one to the next": {fetch, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/v2/app/blobs/again", http.StatusTemporaryRedirect)
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, sent, requests := hostile(t, tt.handler)
			ended := make(chan error, 1)
			go func() { ended <- tt.ask(t, c) }()
			select {
			case err := <-ended:
				if err == nil {
					t.Error("it has an end")
				}
			case <-time.After(time.Minute):
				t.Fatal("it is still waited for")
			}
			if sent.Load() > 3*imagecontent.DocumentLimit || requests.Load() > 40 {
				t.Errorf("%d bytes were sent in answer to %d requests", sent.Load(), requests.Load())
			}
		})
	}
}

func resolve(t *testing.T, c *Client) error {
	_, err := c.Resolve(t.Context())
	return err
}

func fetch(t *testing.T, c *Client) error {
	blob := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayerGzip, Digest: digest.FromString("x"), Size: blobSize}
	return c.With(func(r remotes.Resolver) error {
		fetcher, err := r.Fetcher(t.Context(), c.name)
		if err != nil {
			return err
		}
		body, err := fetcher.Fetch(WithBlob(t.Context(), blob), blob)
		if err != nil {
			return err
		}
		defer func() { _ = body.Close() }()
		_, err = io.Copy(io.Discard, body)
		return err
	})
}

// TestHostileTexts are what a registry sends so that whoever reads an error is misled: no control character
// arrives there, and not much of it.
func TestHostileTexts(t *testing.T) {
	const text = "\x1b[2J\x1b]0;owned\x07 all is well\u202e"
	long := strings.Repeat(text+"\r\n", 20_000)
	status := func(code int, header string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			conn, to, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			defer func() { _ = conn.Close() }() // whoever reads it has gone
			_, _ = fmt.Fprintf(to, "HTTP/1.1 %d %s\r\nContent-Length: 0\r\nConnection: close\r\n%s\r\n", code, strings.Repeat(text, 5000), header)
			_ = to.Flush()
		}
	}
	for name, handler := range map[string]http.HandlerFunc{
		"an error's body": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprintf(w, `{"errors":[{"code":"DENIED","message":"%s"}]}`, strings.Repeat(`\u001b[2J\r\nall is well\u202e`, 20_000))
		},
		"a body that is no JSON": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTeapot)
			_, _ = w.Write([]byte(long))
		},
		"the words of a status": status(http.StatusTeapot, ""),
		"of one that is busy":   status(http.StatusTooManyRequests, ""),
		"where its tokens are":  status(http.StatusUnauthorized, "WWW-Authenticate: Bearer realm=\"http://127.0.0.1:1/\x1b]0;owned\a"+strings.Repeat("a", 200_000)+"\"\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			c, _, _ := hostile(t, handler)
			_, err := c.Resolve(t.Context())
			if err == nil {
				t.Fatal("it was accepted")
			}
			got := c.Failure(err).Error()
			if len(got) > 1024 || strings.IndexFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
				t.Errorf("got %d bytes: %.200q", len(got), got)
			}
		})
	}
}
