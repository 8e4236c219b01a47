package access

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// flood opens connections to a limited listener, which accepts all of them.
type flood struct {
	t       *testing.T
	l       *Listener
	node    atomic.Bool // whether those that are looked at are the node's
	isSlow  func(net.Conn) bool
	refused prometheus.Counter

	accepted atomic.Int64
}

// stranger is an Identify where no connection is the node's, and all are of one peer; strangers, where
// each is of its own.
func stranger(net.Conn) (bool, string)       { return false, "" }
func strangers(conn net.Conn) (bool, string) { return false, conn.RemoteAddr().String() }
func theNode(net.Conn) (bool, string)        { return true, "" }

func newFlood(t *testing.T, maxOpen int) *flood {
	t.Helper()
	c := &flood{}
	c.listen(t, NewBudget(maxOpen), false, c.identify)
	return c
}

func (c *flood) identify(conn net.Conn) (bool, string) {
	_, peer := strangers(conn)
	return c.node.Load(), peer
}

// listen listens at an address of its own.
func (c *flood) listen(t *testing.T, b *Budget, forPods bool, identify Identify) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.t, c.refused = t, prometheus.NewCounter(prometheus.CounterOpts{})
	c.l = newListener(l.(*net.TCPListener), b, forPods, identify, c.refused, slog.New(slog.DiscardHandler))
	c.l.isSlow = c.isSlow
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := c.l.Accept()
			if err != nil {
				return
			}
			c.accepted.Add(1)
			go func() { // as a server does: it answers, and ends when its client has
				io.WriteString(conn, "x")
				io.Copy(io.Discard, conn)
				conn.Close()
			}()
		}
	}()
	t.Cleanup(func() { c.l.Close(); <-done })
}

// dial returns a connection, or nil if it was closed at once.
func (c *flood) dial() net.Conn {
	c.t.Helper()
	if conn := c.open(); c.isAccepted(conn) {
		return conn
	}
	return nil
}

func (c *flood) open() net.Conn {
	c.t.Helper()
	conn, err := net.Dial("tcp", c.l.Addr().String())
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { conn.Close() })
	return conn
}

// isAccepted waits until a connection is accepted or closed.
func (c *flood) isAccepted(conn net.Conn) bool {
	c.t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
	_, err := io.ReadFull(conn, make([]byte, 1))
	if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
		c.t.Fatal("a connection was neither accepted nor closed")
	}
	return err == nil
}

// awaitOpen waits until l counts n open connections.
func awaitOpen(t *testing.T, l *Listener, n int64) {
	t.Helper()
	await(t, fmt.Sprintf("%d connections count", n), func() bool { return l.open.Load() == n })
}

func TestTheLastQuarterIsReservedForTheNode(t *testing.T) {
	c := newFlood(t, 8)
	var first net.Conn
	for i := range 6 {
		if first = c.dial(); first == nil {
			t.Fatalf("connection %d of 8 was refused", i+1)
		}
	}
	if c.dial() != nil {
		t.Error("a stranger got into the last quarter")
	}
	c.node.Store(true)
	for i := range 2 {
		if c.dial() == nil {
			t.Errorf("connection %d of 8 was refused to the node", i+7)
		}
	}
	if c.dial() != nil {
		t.Error("there are more than --max-connections")
	}
	first.Close()
	awaitOpen(t, c.l, 7)
	if c.dial() == nil {
		t.Error("the room of a connection that has ended is lost")
	}
}

// Pods take no connection of kubelet's, nor the last one of another user.
func TestAddressesShareTheirConnections(t *testing.T) {
	var node, v4, v6 flood
	budget := NewBudget(16)
	node.listen(t, budget, false, node.identify)
	v4.listen(t, budget, true, strangers)
	v6.listen(t, budget, true, strangers)
	accepted := func(c *flood) (n int) {
		for range 16 {
			if c.dial() != nil {
				n++
			}
		}
		return n
	}
	if n := accepted(&v4) + accepted(&v6); n != 8 {
		t.Errorf("pods got %d of 16", n)
	}
	if n := accepted(&node); n != 4 {
		t.Errorf("other users got %d of 16", n)
	}
	node.node.Store(true)
	if n := accepted(&node); n != 4 {
		t.Errorf("the node got %d of 16", n)
	}
}

// A peer that takes all that it can leaves the others as much each, at addresses for pods and at others.
func TestOnePeerTakesAThirdOfTheConnections(t *testing.T) {
	var peer atomic.Value
	var users, pods flood
	budget, identify := NewBudget(160), func(net.Conn) (bool, string) { return false, peer.Load().(string) }
	users.listen(t, budget, false, identify)
	pods.listen(t, budget, true, identify)
	for _, tt := range []struct {
		at   *flood
		peer string
		want int
	}{
		{&users, "user", 40}, // a third of 120
		{&pods, "a", 27},     // of 80
		{&pods, "b", 18},     // of the 53 that are left
		{&pods, "c", 12},
		{&pods, "a", 0},
	} {
		peer.Store(tt.peer)
		n := 0
		for range 60 {
			if tt.at.dial() != nil {
				n++
			}
		}
		if n != tt.want {
			t.Errorf("%s got %d, want %d", tt.peer, n, tt.want)
		}
	}
}

// Where it takes time to find whose connections are, others do not wait for that, and these are one peer meanwhile.
func TestAConnectionIsAcceptedWhenItIsFoundWhoseItIs(t *testing.T) {
	var c flood
	var others atomic.Bool
	var looked sync.Map // for, by their addresses
	found := make(chan struct{})
	c.isSlow = func(conn net.Conn) bool {
		if others.Load() {
			return false
		}
		looked.Store(conn.RemoteAddr().String(), nil)
		return true
	}
	c.listen(t, NewBudget(160), true, func(conn net.Conn) (bool, string) {
		if _, ok := looked.Load(conn.RemoteAddr().String()); !ok {
			return false, "b"
		}
		<-found
		return false, "a"
	})
	var conns []net.Conn
	for range 60 {
		conns = append(conns, c.open())
	}
	const most = 27 // a third of 80
	await(t, "all but the peer's share are closed", func() bool { return c.l.open.Load() == most && testutil.ToFloat64(c.refused) == 60-most })
	others.Store(true)
	if c.dial() == nil || c.accepted.Load() != 1 {
		t.Errorf("another peer waits, or of these %d are accepted before they are found", c.accepted.Load()-1)
	}
	close(found)
	n := 0
	for _, conn := range conns {
		if c.isAccepted(conn) {
			n++
		}
	}
	if counted := c.l.budget.pods.Len(); n != most || counted != most+1 {
		t.Errorf("%d are accepted when they are found, want %d; with another's, %d count", n, most, counted)
	}
}

// readAll reads what a client sends, until an error.
func readAll(t *testing.T, conn net.Conn) (int64, error) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
	return io.Copy(io.Discard, struct{ io.Reader }{conn})
}

func TestAConnectionSendsNoMoreThanAHandshakeAndAHeader(t *testing.T) {
	for name, tt := range map[string]struct {
		states []http.ConnState
		sent   int64
		err    error
	}{
		"before its first request":   {[]http.ConnState{http.StateNew}, maxBegin, errBegin},
		"once that has arrived":      {[]http.ConnState{http.StateNew, http.StateActive}, 4 * maxBegin, nil},
		"while it waits for another": {[]http.ConnState{http.StateNew, http.StateActive, http.StateIdle}, maxBegin, errBegin},
		"once another has arrived":   {[]http.ConnState{http.StateActive, http.StateIdle, http.StateActive}, 4 * maxBegin, nil},
	} {
		t.Run(name, func(t *testing.T) {
			tcp, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			l := newListener(tcp.(*net.TCPListener), NewBudget(64), true, stranger, prometheus.NewCounter(prometheus.CounterOpts{}), slog.New(slog.DiscardHandler))
			defer l.Close()
			client, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				client.Write(make([]byte, 4*maxBegin)) //nolint:errcheck // the server may have closed it
				client.Close()
			}()
			conn, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			for _, state := range tt.states {
				ConnState(tls.Server(conn, nil), state)
			}
			if n, err := readAll(t, conn); n != tt.sent || !errors.Is(err, tt.err) {
				t.Errorf("%d bytes were read: %v", n, err)
			}
		})
	}
}

func TestClosingALimitedListenerEndsAccept(t *testing.T) {
	c := newFlood(t, 8)
	c.l.Close()
	if _, err := c.l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept: %v", err)
	}
}

func TestOneSubjectIsSpokenOfOnceAMinute(t *testing.T) {
	s, began := newLogLimit(), time.Now()
	if !s.allow("a", began) {
		t.Error("it is not said at all")
	}
	if s.allow("a", began.Add(logInterval-1)) || !s.allow("b", began) || !s.allow("a", began.Add(logInterval)) {
		t.Error("it is said too often, or not again")
	}
	for i := range 2 * maxSubjects {
		s.allow(string(rune(i)), began)
	}
	if len(s.last) > maxSubjects {
		t.Errorf("%d subjects are remembered", len(s.last))
	}
	if !s.allow("c", began.Add(2*logInterval)) {
		t.Error("old subjects take the room of new ones")
	}
}

func TestAConnectionThatWasAcceptedIsServedAfterClose(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := newListener(tcp.(*net.TCPListener), NewBudget(64), false, theNode, prometheus.NewCounter(prometheus.CounterOpts{}), slog.New(slog.DiscardHandler))
	var clients []net.Conn
	for range 2 {
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		clients = append(clients, client)
	}
	first, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	awaitOpen(t, l, int64(len(clients))) // the second is accepted, and nobody has taken it
	l.Close()
	second, err := l.Accept()
	if err != nil {
		t.Fatalf("the second connection was dropped: %v", err)
	}
	second.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a third Accept: %v", err)
	}
}

func TestAPortWithTwoAddressesHasOneGauge(t *testing.T) {
	registry := prometheus.NewRegistry()
	connections := NewConnections(registry)
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		limited := connections.Limit("--dummy-if-ip", l.(*net.TCPListener), NewBudget(4), true, &Callers{}, slog.New(slog.DiscardHandler))
		t.Cleanup(func() { limited.Close() })
		limited.open.Add(1)
	}
	const want = `# HELP edgehub_connections Open connections, by the flag of their port.
# TYPE edgehub_connections gauge
edgehub_connections{port="dummy-if-ip"} 2
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "edgehub_connections"); err != nil {
		t.Error(err)
	}
}
