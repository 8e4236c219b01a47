package liveness

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"testing"
	"testing/synctest"
	"time"
)

// The dial fails by itself at the moment at which the loss cancels it. It has to return an error,
// whichever of the two comes first.
func TestADialThatFailsWhileTheLossIsNoticedReturnsAnError(t *testing.T) {
	silent := &UnresponsiveError{time.Second}
	for range 1000 { // two goroutines race
		cs := NewConns(upServer{}, &url.URL{}, Timeouts{Loss: 2500 * time.Millisecond, IdlePing: 10 * time.Second}, slog.New(slog.DiscardHandler))
		cs.Network.Dial = func(context.Context, string, string) (net.Conn, error) {
			cs.CloseAll(silent)
			return nil, errors.New("connection refused")
		}
		if c, err := (&dialer{conns: cs}).connect(t.Context(), "tcp", "a:6443", 0); c != nil || err == nil {
			t.Fatalf("connection %v, error %v; want an error alone", c, err)
		}
	}
}

// A dial whose end comes late counts only so often as one that a starved process has not noticed.
func TestAnAttemptToConnectIsRepeatedByAStarvedHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &countingServer{}
		cs := NewConns(s, &url.URL{}, Timeouts{Loss: loss, IdlePing: 10 * time.Second}, slog.New(slog.DiscardHandler))
		dials, accepted := 0, maxVoid/2
		cs.Network.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			if dials++; dials == accepted {
				own, other := net.Pipe()
				return own, other.Close()
			}
			<-ctx.Done()
			time.Sleep(400 * time.Millisecond)
			return nil, ctx.Err()
		}
		dial := func() error {
			c, err := (&dialer{conns: cs}).connect(t.Context(), "tcp", "a:6443", 0)
			if err == nil {
				c.Close()
			}
			return err
		}
		if err := dial(); err != nil || s.lost.Load() > 0 {
			t.Errorf("dial %d: %v", dials, err)
		}
		dials, accepted = 0, 2*maxVoid
		if err := dial(); !IsUnresponsive(err) || dials != maxVoid+1 || s.lost.Load() != 1 {
			t.Errorf("after %d dials: %v", dials, err)
		}
	})
}

// upServer is an apiserver that stays up.
type upServer struct{}

func (upServer) Down() error           { return nil }
func (upServer) Unresponsive(error)    {}
func (upServer) ConnectFailed(error)   {}
func (upServer) Starved(time.Duration) {}
