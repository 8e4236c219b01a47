package registry

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// drip brings a byte at a time.
type drip struct {
	every time.Duration
	left  int
}

func (d *drip) Read(p []byte) (int, error) {
	if d.left == 0 {
		return 0, io.EOF
	}
	time.Sleep(d.every)
	d.left--
	return copy(p[:1], "x"), nil
}

func TestMinimumRate(t *testing.T) {
	tests := map[string]struct {
		every time.Duration
		size  int
		fails time.Duration // 0: it does not
	}{
		"a byte at a time is too slow":           {every: 900 * time.Millisecond, size: 1 << 20, fails: time.Minute + 300*time.Millisecond},
		"slightly less than MinRate is too slow": {every: time.Second/MinRate + 50*time.Microsecond, size: 1 << 20, fails: time.Minute},
		"slightly more than MinRate passes":      {every: time.Second/MinRate - 50*time.Microsecond, size: 1 << 18},
		"a short body that takes long passes":    {every: time.Second, size: 10},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := NewTransports(NewLimiter(0), time.Minute, func(int) {}, nil)
				response, err := fetchBlob(t, w, body200(func(context.Context) io.Reader { return &drip{every: tt.every, left: tt.size} }), int64(tt.size))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = response.Body.Close() }()
				start := time.Now()
				n, err := io.Copy(io.Discard, response.Body)
				if tt.fails == 0 {
					if err != nil || n != int64(tt.size) {
						t.Errorf("%d bytes were read: %v", n, err)
					}
					return
				}
				if took := time.Since(start); !errors.Is(err, errSlow) || IsCut(err) || took.Round(time.Second) != tt.fails.Round(time.Second) {
					t.Errorf("after %v: %v; want that it is too slow, after %v", took, err, tt.fails)
				}
			})
		})
	}
}

// TestPatienceOfAPull ends with all of its requests together, however small they are.
func TestPatienceOfAPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewTransports(NewLimiter(0), time.Minute, func(int) {}, nil)
		Slow := answering(func(r *http.Request) (*http.Response, error) {
			select {
			case <-time.After(50 * time.Second):
				return &http.Response{StatusCode: http.StatusOK, ContentLength: -1, Request: r, Body: http.NoBody}, nil
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		})
		start := time.Now()
		for {
			response, err := roundTrip(t, w, Slow)
			if err == nil {
				_ = response.Body.Close()
				continue
			}
			if took := time.Since(start); !errors.Is(err, errSlow) || took != slackWindows*time.Minute {
				t.Errorf("after %v: %v", took, err)
			}
			return
		}
	})
}

// TestPatienceHasAnEnd also for a registry that sends enough: others are waiting.
func TestPatienceHasAnEnd(t *testing.T) {
	p := &budget{window: time.Minute}
	waited := time.Duration(0)
	for over := false; !over && waited < 2*waitAtMost; waited += time.Minute {
		over = p.add(time.Minute, 1<<20)
	}
	if waited != waitAtMost {
		t.Errorf("it ended after %v, want %v", waited, waitAtMost)
	}
	if _, err := p.ask(); !errors.Is(err, errSlow) {
		t.Errorf("a further request: %v", err)
	}
}

func TestRequestsOfAPull(t *testing.T) {
	p := &budget{window: time.Minute}
	asked := 0
	for ; asked < 2*requestsAtMost; asked++ {
		if _, err := p.ask(); err != nil {
			break
		}
	}
	if asked != requestsAtMost {
		t.Errorf("%d requests were allowed, want %d", asked, requestsAtMost)
	}
	p.add(0, 10*PieceSize)
	for range 10 {
		if _, err := p.ask(); err != nil {
			t.Error("what has come in does not allow for more requests")
		}
	}
}
