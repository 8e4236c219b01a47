package liveness

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"testing"
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
		if c, err := (&dialer{conns: cs}).connect(t.Context(), "tcp", "a:6443"); c != nil || err == nil {
			t.Fatalf("connection %v, error %v; want an error alone", c, err)
		}
	}
}

// upServer is an apiserver that stays up.
type upServer struct{}

func (upServer) Down() error         { return nil }
func (upServer) Unresponsive(error)  {}
func (upServer) ConnectFailed(error) {}
