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
	silent := &UnresponsiveError{time.Second}
	for range 1000 { // two goroutines race
		s := newServer(&url.URL{Scheme: "https", Host: "a:6443"}, "node", Limits{}.withDefaults(), slog.New(slog.DiscardHandler),
			NewUpstreamMetrics(prometheus.NewRegistry()), func(bool, time.Time) {}, func(bool, time.Time) {})
		s.conns.Network.Dial = func(context.Context, string, string) (net.Conn, error) {
			s.conns.CloseAll(silent)
			return nil, errors.New("connection refused")
		}
		if c, err := (&dialer{conns: s.conns}).connect(t.Context(), "tcp", "a:6443"); c != nil || err == nil {
			t.Fatalf("there is a connection, %v, or no error: %v", c, err)
		}
	}
}
