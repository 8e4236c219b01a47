// Package link is the network between one hub and the apiserver, as a TCP proxy
// that fails on demand, and is as slow as asked for. It needs no privileges and does not look into what
// passes.
//
// A link starts Up. Its mode says what becomes of new and of established
// connections, and stays until another is set:
//
//	            new connections          established connections
//	Up          pass                     pass
//	Refuse      connection refused       pass
//	BlackHole   no answer to the SYN     nothing passes, no one is notified
//
// Reset and ResetAfter are events, not modes: they break established
// connections in whatever mode the link is. A connection is established from
// when the link has accepted it, which may be just after the client's Dial has
// returned; Refuse and Reset together leave no connection. A cable that is cut is a
// BlackHole; an apiserver's machine that reboots is Refuse and Reset.
//
// What a BlackHole holds back is delivered when the link is Up again, as TCP
// would by sending it once more. All methods may be called from several
// goroutines; a change has taken effect when its method returns.
package link

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Link forwards the connections to one address to another. Close it at the end.
type Link struct {
	addr   string
	target string
	delay  atomic.Int64 // time.Duration, each way
	up     line         // to the target
	down   line         // to the client

	modeMu   sync.Mutex // one change of mode at a time
	listener *listener  // nil while refusing; guarded by modeMu

	mu     sync.Mutex
	gate   chan struct{} // closed while bytes may pass
	conns  map[*conn]struct{}
	cut    *atomic.Int64 // bytes to the client until the reset; nil: none is due
	closed bool
	all    sync.WaitGroup // the goroutines of connections and listeners

	dialing     context.Context // ends with Close
	stopDialing context.CancelFunc
}

// Listen makes a link from addr to target, both "host:port". With port 0, the
// system chooses one, which something else may take while the link refuses.
func Listen(addr, target string) (*Link, error) {
	l := &Link{target: target, gate: make(chan struct{}), conns: map[*conn]struct{}{}}
	close(l.gate)
	l.dialing, l.stopDialing = context.WithCancel(context.Background())
	if err := l.listen(addr); err != nil {
		l.stopDialing()
		return nil, err
	}
	l.addr = l.listener.Addr().String()
	return l, nil
}

// Addr is the address that clients of the link connect to.
func (l *Link) Addr() string { return l.addr }

// Up lets everything pass.
func (l *Link) Up() error {
	l.modeMu.Lock()
	defer l.modeMu.Unlock()
	if err := l.listenAgain(); err != nil {
		return err
	}
	l.openGate()
	return l.listener.unplug()
}

// Refuse refuses new connections; the established ones go on. Connections that
// the link has not accepted yet are reset.
func (l *Link) Refuse() error {
	l.modeMu.Lock()
	defer l.modeMu.Unlock()
	l.openGate()
	if l.listener == nil {
		return nil
	}
	err := l.listener.Close()
	l.listener = nil
	return err
}

// BlackHole lets nothing pass and notifies no one: what is sent on an established
// connection never arrives, and connecting times out.
func (l *Link) BlackHole() error {
	l.modeMu.Lock()
	defer l.modeMu.Unlock()
	if err := l.listenAgain(); err != nil {
		return err
	}
	l.closeGate()
	return l.listener.plug()
}

// Reset breaks the established connections, at both ends with a TCP reset; also
// those whose target is still being dialled.
func (l *Link) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.reset()
	}
}

// ResetAfter breaks the connection that carries the n-th byte to the client from
// now on, right behind that byte, and no other.
func (l *Link) ResetAfter(n int64) {
	cut := &atomic.Int64{}
	cut.Store(n)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
}

// SetDelay makes what is read from now on arrive that much later, each way;
// 0 is the start.
func (l *Link) SetDelay(d time.Duration) { l.delay.Store(int64(d)) }

// SetRate lets so many bytes a second pass each way, those of all connections
// together; 0 is the start: no limit. It is for what is read from now on. A line of
// 1.5 s round trip and 1 Mbit/s is SetDelay(750 * time.Millisecond) and
// SetRate(125_000).
func (l *Link) SetRate(bytesPerSecond int) {
	l.up.setRate(bytesPerSecond)
	l.down.setRate(bytesPerSecond)
}

// Established is the number of connections that are open now; also of those
// whose target is still being dialled.
func (l *Link) Established() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// Close breaks all connections and returns when nothing of the link runs.
func (l *Link) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.stopDialing()
	err := l.Refuse()
	l.Reset()
	l.all.Wait()
	return err
}

func (l *Link) listenAgain() error {
	if l.listener != nil {
		return nil
	}
	return l.listen(l.addr)
}

func (l *Link) listen(addr string) error {
	listener, err := newListener(addr)
	if err != nil {
		return fmt.Errorf("link: %w", err)
	}
	l.listener = listener
	l.all.Go(func() { listener.serve(l.forward) })
	return nil
}

func (l *Link) openGate() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.gate:
	default:
		close(l.gate)
	}
}

func (l *Link) closeGate() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.gate:
		l.gate = make(chan struct{})
	default:
	}
}

// awaitGate returns when bytes may pass; false when done is closed first.
func (l *Link) awaitGate(done <-chan struct{}) bool {
	for {
		l.mu.Lock()
		gate := l.gate
		l.mu.Unlock()
		select {
		case <-gate:
			return true
		case <-done:
			return false
		}
	}
}

// forward carries one new connection until its end. The connection counts as
// established when forward returns, although the target has yet to be dialled.
func (l *Link) forward(client *net.TCPConn) {
	ctx, cancel := context.WithCancel(l.dialing)
	c := &conn{link: l, client: client, done: ctx.Done(), cancel: cancel}
	if !l.add(c) {
		c.reset()
		return
	}
	l.all.Go(func() {
		defer cancel()
		defer l.remove(c)
		if err := c.dial(ctx); err != nil {
			c.reset() // the nearest that is left to "connection refused"
			return
		}
		c.run()
	})
}

// add makes c one of the connections that Reset breaks, unless the link closes.
func (l *Link) add(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.conns[c] = struct{}{}
	return true
}

func (l *Link) remove(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

// allow takes up to n bytes to the client off the way to a reset that is due;
// fewer than n means: reset behind them.
func (l *Link) allow(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut == nil {
		return n
	}
	left := l.cut.Add(int64(-n))
	if left > 0 {
		return n
	}
	l.cut = nil
	return n + int(left)
}
