package link

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/edgehub-io/edgehub/test/cluster/freeport"
)

// soon is longer than anything takes over loopback, and still short: it passes
// only in tests that prove that nothing comes.
const soon = 300 * time.Millisecond

// patience bounds how long a test waits for what must happen. It is long, as the
// machine may be busy.
const patience = 2 * time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestUpCarriesBothWaysAndEndsWithTheConnection(t *testing.T) {
	l := newLink(t, echo(t))
	c := dial(t, l)
	expectEcho(t, c, strings.Repeat("0123456789", 100_000))
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(c); err != nil || len(rest) != 0 {
		t.Fatalf("after the orderly end: %d bytes, %v; want 0, nil", len(rest), err)
	}
	eventually(t, "no connection is left", func() bool { return l.Established() == 0 })
}

func TestRefuseRefusesOnlyNewConnections(t *testing.T) {
	l := newLink(t, echo(t))
	c := dial(t, l)
	expectEcho(t, c, "before")
	must(t, l.Refuse())

	expectEcho(t, c, "still there")
	if _, err := net.DialTimeout("tcp", l.Addr(), patience); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("connecting: %v; want connection refused", err)
	}
	must(t, l.Up())
	expectEcho(t, dial(t, l), "again")
}

func TestResetBreaksEstablishedConnectionsAtBothEnds(t *testing.T) {
	broken := make(chan error, 1)
	l := newLink(t, serve(t, func(c net.Conn) {
		_, err := io.Copy(c, c)
		broken <- err
	}))
	c := dial(t, l)
	expectEcho(t, c, "before")
	l.Reset()

	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client sees %v; want connection reset", err)
	}
	if err := <-broken; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the server sees %v; want connection reset", err)
	}
	expectEcho(t, dial(t, l), "new connections pass")
}

func TestResetAfterBreaksRightBehindThatByte(t *testing.T) {
	l := newLink(t, echo(t))
	other := dial(t, l)
	expectEcho(t, other, "other")
	c := dial(t, l)
	l.ResetAfter(100_000)
	go func() { _, _ = io.WriteString(c, strings.Repeat("x", 200_000)) }()

	got, err := io.ReadAll(c)
	if len(got) != 100_000 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client got %d bytes, then %v; want 100000, then connection reset", len(got), err)
	}
	expectEcho(t, other, "the other connection lives")
}

func TestBlackHoleSwallowsAndIsLifted(t *testing.T) {
	l := newLink(t, echo(t))
	c := dial(t, l)
	expectEcho(t, c, "before")
	must(t, l.BlackHole())

	if _, err := net.DialTimeout("tcp", l.Addr(), soon); !isTimeout(err) {
		t.Errorf("connecting: %v; want no answer at all", err)
	}
	if _, err := io.WriteString(c, "delayed"); err != nil {
		t.Fatalf("sending into the hole: %v; want success, as with a cable that is cut", err)
	}
	must(t, c.SetReadDeadline(time.Now().Add(soon)))
	if n, err := c.Read(make([]byte, 1)); !isTimeout(err) {
		t.Fatalf("reading from the hole: %d bytes, %v; want nothing", n, err)
	}

	must(t, l.Up())
	must(t, c.SetReadDeadline(time.Time{}))
	expect(t, c, "delayed")
	expectEcho(t, dial(t, l), "new connections pass")
}

func TestEveryModeFollowsEveryOther(t *testing.T) {
	l := newLink(t, echo(t))
	modes := []func() error{l.Up, l.Refuse, l.BlackHole}
	for _, from := range modes {
		for _, to := range modes {
			must(t, from())
			must(t, to())
			must(t, l.Up())
			expectEcho(t, dial(t, l), "passes")
		}
	}
}

func TestDelayHoldsEachWay(t *testing.T) {
	const delay = 50 * time.Millisecond
	l := newLink(t, echo(t))
	c := dial(t, l)
	l.SetDelay(delay)
	start := time.Now()
	expectEcho(t, c, "late")
	if took := time.Since(start); took < 2*delay {
		t.Errorf("there and back took %s; want at least %s", took, 2*delay)
	}
}

func TestRateIsSharedByAllConnections(t *testing.T) {
	const (
		rate = 1 << 20
		each = 256 << 10
	)
	l := newLink(t, echo(t))
	first, second := dial(t, l), dial(t, l)
	l.SetRate(rate)
	start := time.Now()
	var both sync.WaitGroup
	for _, c := range []net.Conn{first, second} {
		both.Go(func() { // not expectEcho, which may end the test only in its own goroutine
			go func() { _, _ = io.WriteString(c, strings.Repeat("x", each)) }()
			if n, err := io.ReadFull(c, make([]byte, each)); err != nil {
				t.Errorf("%d of %d bytes came back, %v", n, each, err)
			}
		})
	}
	both.Wait()
	// The way back begins while the way there goes on: 2 * each take half a second.
	// What the lines hold may come at once.
	if took, least := time.Since(start), (2*each-2*lineChunk)*time.Second/rate; took < least {
		t.Errorf("%d bytes each way took %s; want at least %s at %d bytes a second", 2*each, took, least, rate)
	}
}

func TestWhatIsSentLaterWaitsForWhatIsOnTheLine(t *testing.T) {
	const rate = 256 << 10
	l := newLink(t, serve(t, func(c net.Conn) {
		_, _ = io.WriteString(c, strings.Repeat("x", rate)) // a second
		_, _ = io.WriteString(c, "answer")
		_, _ = io.Copy(io.Discard, c)
	}))
	l.SetRate(rate)
	l.SetDelay(50 * time.Millisecond)
	start := time.Now()
	c := dial(t, l)
	expect(t, c, strings.Repeat("x", rate)+"answer")
	if took := time.Since(start); took < time.Second {
		t.Errorf("what was sent behind a second's worth came after %s", took)
	}
}

func TestResetFreesALineThatIsFull(t *testing.T) {
	l := newLink(t, echo(t))
	c := dial(t, l)
	l.SetRate(1) // what follows would take days
	go func() { _, _ = io.WriteString(c, strings.Repeat("x", 10<<20)) }()
	eventually(t, "the line is full", func() bool { return time.Until(l.up.room()) > 0 })
	l.Reset()
	eventually(t, "no connection is left", func() bool { return l.Established() == 0 })
}

func TestResetBreaksConnectionsWhoseTargetDoesNotAnswer(t *testing.T) {
	l := newLink(t, hole(t))
	c := dial(t, l)
	eventually(t, "the link has the connection", func() bool { return l.Established() == 1 })
	l.Reset()

	expectReset(t, c)
	eventually(t, "no connection is left", func() bool { return l.Established() == 0 })
}

func TestRefuseAndResetLeaveNoConnection(t *testing.T) {
	l := newLink(t, hole(t))
	for range 100 {
		c := dial(t, l) // the link may or may not have accepted it yet
		must(t, l.Refuse())
		l.Reset()
		expectReset(t, c)
		must(t, l.Up())
	}
}

func TestCloseDoesNotWaitForTargetsThatDoNotAnswer(t *testing.T) {
	l := newLink(t, hole(t))
	c := dial(t, l)
	must(t, l.Close())
	expectReset(t, c)
}

func TestCloseInABlackHoleLeavesNothing(t *testing.T) {
	l := newLink(t, echo(t))
	c := dial(t, l)
	expectEcho(t, c, "before")
	must(t, l.BlackHole())
	_, _ = io.WriteString(c, "never delivered")
	must(t, l.Close())
	if l.Established() != 0 {
		t.Errorf("%d connections are left", l.Established())
	}
}

func newLink(t *testing.T, target string) *Link {
	t.Helper()
	l, err := Listen(freeAddress(t), target)
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// freeAddress returns an address where nothing listens, and that nothing else takes.
func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := freeport.Address()
	must(t, err)
	return address
}

func echo(t *testing.T) string {
	return serve(t, func(c net.Conn) {
		_, _ = io.Copy(c, c)
	})
}

// hole returns the address of a target that does not answer.
func hole(t *testing.T) string {
	t.Helper()
	l := newLink(t, echo(t))
	must(t, l.BlackHole())
	return l.Addr()
}

// serve handles connections until the test ends and returns the address.
func serve(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				handle(c)
			}()
		}
	}()
	return listener.Addr().String()
}

func dial(t *testing.T, l *Link) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr())
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

func expectEcho(t *testing.T, c net.Conn, text string) {
	t.Helper()
	go func() { _, _ = io.WriteString(c, text) }()
	expect(t, c, text)
}

func expect(t *testing.T, c net.Conn, text string) {
	t.Helper()
	got := make([]byte, len(text))
	if n, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Fatalf("got %d of %d bytes, %v", n, len(text), err)
	}
}

// expectReset fails the test unless the connection has been reset.
func expectReset(t *testing.T, c net.Conn) {
	t.Helper()
	must(t, c.SetReadDeadline(time.Now().Add(patience)))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("the client sees %v; want connection reset", err)
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for start := time.Now(); !holds(); time.Sleep(time.Millisecond) {
		if time.Since(start) > patience {
			t.Fatalf("after %s not true: %s", patience, what)
		}
	}
}

func isTimeout(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
