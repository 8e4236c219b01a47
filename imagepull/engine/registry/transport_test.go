package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engine/imagecontent"
)

// answering is a connection that brings one answer.
type answering func(*http.Request) (*http.Response, error)

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

func body200(from func(context.Context) io.Reader) answering {
	return func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, ContentLength: -1, Request: r, Body: io.NopCloser(from(r.Context()))}, nil
	}
}

// silent sends some bytes, and then nothing until it is given up.
type silent struct {
	ctx  context.Context //nolint:containedctx // it stands for a connection, which ends with it
	some io.Reader
}

func (s *silent) Read(p []byte) (int, error) {
	if n, err := s.some.Read(p); err == nil {
		return n, nil
	}
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

func roundTrip(t *testing.T, w *Transports, next http.RoundTripper) (*http.Response, error) {
	t.Helper()
	return fetchBlob(t, w, next, 0)
}

// fetchBlob is a request for a blob of so many bytes; 0: for something else.
func fetchBlob(t *testing.T, w *Transports, next http.RoundTripper, size int64) (*http.Response, error) {
	t.Helper()
	ctx := t.Context()
	if size > 0 {
		ctx = WithBlob(ctx, ocispec.Descriptor{Digest: digest.FromString("x"), Size: size})
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://example.com/", nil)
	if err != nil {
		t.Fatal(err)
	}
	return contentTransport{&transport{transports: w, next: next}}.RoundTrip(request)
}

func TestStalledBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := 0
		w := NewTransports(NewLimiter(0), time.Minute, func(n int) { got += n }, nil)
		response, err := roundTrip(t, w, body200(func(ctx context.Context) io.Reader {
			return &silent{ctx: ctx, some: strings.NewReader("some")}
		}))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		start := time.Now()
		_, err = io.ReadAll(response.Body)
		if took := time.Since(start); took != time.Minute || !errors.Is(err, errStalled) || IsCut(err) {
			t.Errorf("after %v: %v; want that it has stalled, after a minute", took, err)
		}
		if got != len("some") {
			t.Errorf("%d bytes were counted", got)
		}
	})
}

func TestBrokenBody(t *testing.T) {
	for _, cause := range []error{io.ErrUnexpectedEOF, errors.New("connection reset")} {
		w := NewTransports(NewLimiter(0), time.Minute, func(int) {}, nil)
		response, err := roundTrip(t, w, body200(func(context.Context) io.Reader { return iotest.ErrReader(cause) }))
		if err != nil {
			t.Fatal(err)
		}
		_, err = response.Body.Read(make([]byte, 1))
		if !IsCut(err) || err == io.ErrUnexpectedEOF { //nolint:errorlint // containerd's reader compares so, too
			t.Errorf("%v is read as %v; want a cut that containerd's reader leaves to us", cause, err)
		}
		_ = response.Body.Close()
	}
}

// encoding/json ignores an error that comes with bytes, and reads on.
func TestABodyEndsWithItsFirstError(t *testing.T) {
	for name, waited := range map[string]time.Duration{
		"a token without an end":   0,
		"a token that is too slow": waitAtMost, // the pull's budget is used up
	} {
		t.Run(name, func(t *testing.T) {
			w := NewTransports(NewLimiter(0), time.Minute, func(int) {}, nil)
			sent := &letters{left: 10 * imagecontent.DocumentLimit}
			response, err := roundTrip(t, w, body200(func(context.Context) io.Reader {
				return io.MultiReader(strings.NewReader(`{"token":"`), sent)
			}))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			w.budget.add(waited, 0)
			if err := json.NewDecoder(response.Body).Decode(&struct{}{}); err == nil {
				t.Error("the token was accepted")
			}
			if sent.sent > imagecontent.DocumentLimit+1 || waited > 0 && sent.sent > 0 {
				t.Errorf("%d bytes were read", sent.sent)
			}
			if n, err := response.Body.Read(make([]byte, 1)); n > 0 || err == nil {
				t.Errorf("after the error came %d bytes, %v", n, err)
			}
		})
	}
}

// letters is a text that comes in pieces, and counts how much of it was read.
type letters struct{ left, sent int }

func (l *letters) Read(p []byte) (int, error) {
	if l.left == 0 {
		return 0, io.EOF
	}
	n := copy(p, bytes.Repeat([]byte("x"), min(3000, l.left)))
	l.left, l.sent = l.left-n, l.sent+n
	return n, nil
}

func TestLimit(t *testing.T) {
	tests := map[string]struct {
		limit, size int64
		pulls       int // at once
		want        time.Duration
	}{
		// A quarter of a second's bytes come at once, but 4 kB at least, and 256 kB at most.
		"no limit":          {limit: 0, size: 1 << 20, pulls: 1, want: 0},
		"a low limit":       {limit: 10_000, size: 100_000, pulls: 1, want: 9590400 * time.Microsecond},
		"a usual limit":     {limit: 1 << 20, size: 10 << 20, pulls: 1, want: 9750 * time.Millisecond},
		"a high limit":      {limit: 8 << 20, size: 16 << 20, pulls: 1, want: 1968750 * time.Microsecond},
		"two pulls, a half": {limit: 1 << 20, size: 5 << 20, pulls: 2, want: 9750 * time.Millisecond},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, limiter := time.Now(), NewLimiter(tt.limit)
				var all sync.WaitGroup
				for range tt.pulls {
					all.Go(func() {
						w := NewTransports(limiter, time.Minute, func(int) {}, nil)
						response, err := fetchBlob(t, w, body200(func(context.Context) io.Reader {
							return strings.NewReader(strings.Repeat("x", int(tt.size)))
						}), tt.size)
						if err != nil {
							t.Error(err)
							return
						}
						defer func() { _ = response.Body.Close() }()
						if n, err := io.Copy(io.Discard, response.Body); err != nil || n != tt.size {
							t.Errorf("read %d bytes: %v", n, err)
						}
					})
				}
				all.Wait()
				if took := time.Since(start); took.Round(time.Millisecond) != tt.want.Round(time.Millisecond) {
					t.Errorf("it took %v, want %v", took, tt.want)
				}
			})
		})
	}
}

func TestBusyAnswer(t *testing.T) {
	tests := map[string]struct {
		status int
		header string
		busy   bool
		after  time.Duration
	}{
		"too many requests":                 {http.StatusTooManyRequests, "7", true, 7 * time.Second},
		"too many requests, without a time": {http.StatusTooManyRequests, "", true, 0},
		"unavailable for a while":           {http.StatusServiceUnavailable, "120", true, 2 * time.Minute},
		"unavailable":                       {http.StatusServiceUnavailable, "", false, 0},
		"a usual answer":                    {http.StatusOK, "7", false, 0},
		"a wait of days is shortened":       {http.StatusTooManyRequests, "900000", true, time.Hour},
		"an invalid time":                   {http.StatusTooManyRequests, "soon", true, 0},
		"a date that has passed":            {http.StatusTooManyRequests, "Wed, 21 Oct 2015 07:28:00 GMT", true, 0},
		"a negative number":                 {http.StatusTooManyRequests, "-5", true, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := NewTransports(NewLimiter(0), time.Minute, func(int) {}, nil)
			response, err := roundTrip(t, w, answering(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: tt.status, Header: http.Header{"Retry-After": {tt.header}}, Body: http.NoBody}, nil
			}))
			if err == nil {
				_ = response.Body.Close()
			}
			busy, ok := errors.AsType[*busyError](err)
			if ok != tt.busy || ok && busy.after != tt.after {
				t.Errorf("got %v, %+v", err, busy)
			}
		})
	}
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	if got := retryAfter(now.Add(time.Minute).Format(http.TimeFormat), now); got != time.Minute {
		t.Errorf("a date in a minute is %v", got)
	}
}
