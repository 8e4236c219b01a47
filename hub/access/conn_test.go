package access

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/edgehub-io/edgehub/cache/quota"
	"github.com/edgehub-io/edgehub/proxy/limits"
)

// accepted returns a connection that a limited listener with one turn has accepted, and its client,
// which has sent a byte.
func accepted(t *testing.T, b *Budget, identify Identify) (*limitedConn, net.Conn) {
	t.Helper()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := newListener(tcp.(*net.TCPListener), b, false, identify, prometheus.NewCounter(prometheus.CounterOpts{}), slog.New(slog.DiscardHandler))
	t.Cleanup(func() { l.Close() })
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn.(*limitedConn), client
}

func readByte(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Error(err)
	}
}

// What a stranger sends waits while another stranger's is worked on; what the node sends does not.
func TestStrangersWaitForTheirTurn(t *testing.T) {
	for name, goOn := range map[string]func(first *limitedConn){
		"until the other's request has arrived": func(first *limitedConn) { ConnState(tls.Server(first, nil), http.StateActive) },
		"until the other waits for more":        func(first *limitedConn) { go first.Read(make([]byte, 1)) }, //nolint:errcheck // it is closed
		"until the other is closed":             func(first *limitedConn) { first.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			b := NewBudget(64)
			b.turns = quota.NewQueue(1, 0)
			first, _ := accepted(t, b, stranger)
			second, _ := accepted(t, b, stranger)
			third, _ := accepted(t, b, stranger)
			node, _ := accepted(t, b, theNode)
			readByte(t, first)
			readByte(t, node)
			var read atomic.Bool
			done := make(chan struct{})
			go func() {
				defer close(done)
				readByte(t, second)
				read.Store(true)
			}()
			awaitWaiting(t, b.turns, 1)
			go third.Read(make([]byte, 1)) //nolint:errcheck // it is closed
			awaitWaiting(t, b.turns, 2)
			third.Close() // the turn that it waits for is not lost
			if read.Load() {
				t.Error("it has not waited")
			}
			goOn(first)
			<-done
			second.Close()
			awaitFree(t, b.turns)
		})
	}
}

func awaitWaiting(t *testing.T, turns *quota.Queue, want int) {
	t.Helper()
	await(t, "the turns are waited for", func() bool { return turns.Waiting() == want })
}

func awaitFree(t *testing.T, turns *quota.Queue) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	await(t, "the turn is free", func() bool { return turns.Acquire(ctx, "") == nil })
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 2 minutes: %s", what)
		}
	}
}

func TestWhoIsRefusedTooOftenIsServedSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := &Listener{
			budget: NewBudget(64), refused: prometheus.NewCounter(prometheus.CounterOpts{}), log: slog.New(slog.DiscardHandler), logLimit: newLogLimit(),
		}
		refused, other := &limitedConn{TCPConn: &net.TCPConn{}, of: of, peer: "a"}, &limitedConn{TCPConn: &net.TCPConn{}, of: of, peer: "b"}
		reads := func(conn *limitedConn, want time.Duration, wantErr error) {
			t.Helper()
			began := time.Now()
			if err := conn.pay(requestBytes); !errors.Is(err, wantErr) || time.Since(began) != want {
				t.Errorf("what %s sends is read after %v: %v; want %v: %v", conn.peer, time.Since(began), err, want, wantErr)
			}
		}
		refuse := func(n int) {
			for range n {
				refused.refused()
			}
		}
		refuse(refusalsBurst - 1)
		reads(refused, 0, nil)
		refuse(1)
		reads(refused, 3*time.Second/refusalsRate, nil)
		reads(other, 0, nil)
		refuse(2 * refusalsRate * int(longestDebt/time.Second))
		reads(refused, 0, errOwes)
		time.Sleep(longestDebt + time.Second/refusalsRate)
		reads(refused, 0, nil)
	})
}

// Other programs of the same user are slowed down too, but for the node's.
func TestConnectionsOfWhoOwesAreClosed(t *testing.T) {
	b := NewBudget(64)
	refused, _ := accepted(t, b, stranger)
	another, _ := accepted(t, b, stranger)
	node, _ := accepted(t, b, theNode)
	ctx := (&Callers{}).ConnContext(t.Context(), refused)
	b.refusals = limits.NewCosts(1, 1.0/1024) // so that nothing is paid while the test runs
	for range 3 {
		Refused(ctx)
		node.refused()
	}
	another.active.Store(true)
	for name, conn := range map[string]net.Conn{"that was refused": refused, "with a request": another} {
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, errOwes) {
			t.Errorf("the connection %s reads: %v", name, err)
		}
	}
	readByte(t, node)
	if n := testutil.ToFloat64(refused.of.refused); n != 1 {
		t.Errorf("%v are counted", n)
	}
	Refused(t.Context()) // of no connection
}
