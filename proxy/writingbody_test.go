package proxy

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/proxy/authn"
)

// selfWritten is a body that writes itself in pieces, and then ends with err.
type selfWritten struct {
	pieces []string
	err    error
	closed bool
}

func (*selfWritten) Read([]byte) (int, error) { return 0, errors.New("read instead of written") }

func (b *selfWritten) WriteTo(w io.Writer) (sent int64, err error) {
	for _, piece := range b.pieces {
		n, err := io.WriteString(w, piece)
		if sent += int64(n); err != nil {
			return sent, err
		}
	}
	return sent, b.err
}

func (b *selfWritten) Close() error {
	b.closed = true
	return nil
}

// RoundTrip answers with the body.
func (b *selfWritten) RoundTrip(r *http.Request) (*http.Response, error) {
	res := answerOf(r, b)
	res.ContentLength = 1 << 20
	return res, nil
}

func TestABodyThatWritesItself(t *testing.T) {
	large := strings.Repeat("x", 3*copyBuffer)
	for name, test := range map[string]struct {
		body selfWritten
		want string // "" where the client must not take it for whole
	}{
		"a whole one":          {selfWritten{pieces: []string{large, "end"}}, large + "end"},
		"one that breaks off":  {selfWritten{pieces: []string{large}, err: errors.New("damaged")}, ""},
		"one that never began": {selfWritten{err: errors.New("damaged")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			front := httptest.NewServer(newProxy(&test.body).Handler(authn.Loopback))
			defer front.Close()
			front.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
			var body []byte
			res, err := front.Client().Get(front.URL + "/api/v1/pods")
			if err == nil {
				body, err = io.ReadAll(res.Body)
				res.Body.Close()
			}
			if (err == nil) != (test.want != "") || err == nil && string(body) != test.want {
				t.Errorf("%d bytes, %v; want %d bytes", len(body), err, len(test.want))
			}
			front.Close() // the handler has returned
			if !test.body.closed {
				t.Error("the body was not closed")
			}
		})
	}
}

// unmeasured is an upstream whose answer has no length.
type unmeasured struct{ *strings.Reader }

func (unmeasured) Close() error { return nil }

func (b unmeasured) RoundTrip(r *http.Request) (*http.Response, error) {
	return answerOf(r, b), nil
}

// overlapping is a response that notices a flush during a write.
type overlapping struct {
	*httptest.ResponseRecorder
	writing    atomic.Bool
	overlapped chan struct{}
}

func (o *overlapping) Write(p []byte) (int, error) {
	o.writing.Store(true)
	defer o.writing.Store(false)
	select {
	case <-o.overlapped:
	case <-time.After(50 * time.Millisecond): // where nothing flushes, nothing can be waited for
	}
	return o.ResponseRecorder.Write(p)
}

func (o *overlapping) FlushError() error {
	if o.writing.Load() {
		close(o.overlapped)
	}
	return nil
}

// httputil.ReverseProxy flushes an answer without a length from another goroutine, and
// keeps that apart only from what it copies itself.
func TestABodyWithoutALengthIsNotFlushedWhileItIsWritten(t *testing.T) {
	const want = "a list whose items are converted"
	to := &overlapping{ResponseRecorder: httptest.NewRecorder(), overlapped: make(chan struct{})}
	h := newProxy(unmeasured{strings.NewReader(want)}).Handler(authn.Loopback)
	h.ServeHTTP(to, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods", nil))
	select {
	case <-to.overlapped:
		t.Error("the answer was flushed while it was written")
	default:
	}
	if got := to.Body.String(); got != want {
		t.Errorf("the answer is %q", got)
	}
}

// readWith is an upstream whose answer is empty, and notes how much it is asked for.
type readWith struct{ most int }

func (*readWith) Close() error { return nil }

func (b *readWith) Read(p []byte) (int, error) {
	b.most = max(b.most, len(p))
	return 0, io.EOF
}

func (b *readWith) RoundTrip(r *http.Request) (*http.Response, error) {
	return answerOf(r, b), nil
}

// A watch has its buffer for as long as it is open, and a node has a thousand watches.
func TestAWatchHoldsASmallBuffer(t *testing.T) {
	for path, most := range map[string]int{"/api/v1/pods": 32 << 10, "/api/v1/pods?watch=true": 8 << 10, "/api/v1/pods/a/log?follow=true": 32 << 10} {
		body := &readWith{}
		h := newProxy(body).Handler(authn.Loopback)
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if body.most != most {
			t.Errorf("%s is read %d bytes at a time, want %d", path, body.most, most)
		}
	}
}
