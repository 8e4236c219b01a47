package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestAnAttemptThatFailsAsTheLossIsNoticed fails by itself, and just then the loss ends it
// as well. It has failed, whichever of the two is seen first.
func TestAnAttemptThatFailsAsTheLossIsNoticed(t *testing.T) {
	silent := &silentError{time.Second}
	for range 1000 { // two goroutines race
		s := newServer(&url.URL{Scheme: "https", Host: "a:6443"}, "node", Limits{}.withDefaults(), slog.New(slog.DiscardHandler),
			NewUpstreamMetrics(prometheus.NewRegistry()), func(bool, time.Time) {}, func(bool, time.Time) {})
		s.lines.net.dial = func(context.Context, string, string) (net.Conn, error) {
			s.lines.drop(silent)
			return nil, errors.New("connection refused")
		}
		if l, err := (&dialer{lines: s.lines}).connect(t.Context(), "tcp", "a:6443"); l != nil || err == nil {
			t.Fatalf("there is a connection, %v, or no error: %v", l, err)
		}
	}
}
