package link

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const (
	chunkSize = 32 << 10
	// inFlight bounds what is on its way in one direction: 64 chunks, 2 MiB,
	// enough for 100 MB/s at a delay of 20 ms.
	inFlight = 64
)

// conn is one connection through the link, from when the link accepts it.
type conn struct {
	link   *Link
	client *net.TCPConn
	done   <-chan struct{} // closed by cancel
	cancel context.CancelFunc

	mu       sync.Mutex
	upstream *net.TCPConn // nil until dial has succeeded; guarded by mu until then
}

// parcel is what has been read at one end and is due at the other.
type parcel struct {
	data []byte
	err  error // io.EOF: no more will come; another: the end is broken
	due  time.Time
}

// dial connects to the target. The context is the one that cancel ends.
func (c *conn) dial(ctx context.Context) error {
	dialer := net.Dialer{Control: c.link.down.asRemote}
	upstream, err := dialer.DialContext(ctx, "tcp", c.link.target)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.upstream = upstream.(*net.TCPConn)
	return ctx.Err() // after a reset that came before the lines above
}

// run forwards both ways until both ends have finished, or the connection is
// reset.
func (c *conn) run() {
	var both sync.WaitGroup
	both.Go(func() { c.carry(c.upstream, c.client, &c.link.up, nil) })
	both.Go(func() { c.carry(c.client, c.upstream, &c.link.down, c.link.allow) })
	both.Wait()
	_ = c.client.Close()
	_ = c.upstream.Close()
}

// reset breaks the connection at both ends. What it has read is lost.
func (c *conn) reset() {
	c.cancel()
	abort(c.client)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.upstream != nil {
		abort(c.upstream)
	}
}

// abort closes a connection with a reset instead of an orderly end.
func abort(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// carry moves what src sends to dst over the line, late by the delay of the link.
// allow, if not nil, returns how many of the next bytes may pass before the connection
// breaks.
func (c *conn) carry(dst, src *net.TCPConn, over *line, allow func(int) int) {
	parcels := make(chan parcel, inFlight) // closed by collect
	go c.collect(src, over, parcels)
	for p := range parcels {
		if !c.wait(p.due) || !c.link.awaitGate(c.done) || !c.deliver(dst, p, allow) {
			c.reset()
		}
	}
}

// collect reads src until it ends, as fast as the line takes it.
func (c *conn) collect(src *net.TCPConn, over *line, parcels chan<- parcel) {
	defer close(parcels)
	for {
		if !c.wait(over.room()) {
			return
		}
		data := make([]byte, over.chunk())
		n, err := src.Read(data)
		due := over.put(n).Add(time.Duration(c.link.delay.Load()))
		if n > 0 && !c.send(parcels, parcel{data: data[:n], due: due}) {
			return
		}
		if err != nil {
			c.send(parcels, parcel{err: err, due: due})
			return
		}
	}
}

func (c *conn) send(parcels chan<- parcel, p parcel) bool {
	select {
	case parcels <- p:
		return true
	case <-c.done:
		return false
	}
}

func (c *conn) wait(due time.Time) bool {
	delay := time.Until(due)
	if delay <= 0 {
		return true
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.done:
		return false
	}
}

// deliver passes on data, an orderly end, or a break; false: reset the connection.
func (c *conn) deliver(dst *net.TCPConn, p parcel, allow func(int) int) bool {
	if p.err != nil {
		return errors.Is(p.err, io.EOF) && dst.CloseWrite() == nil
	}
	n := len(p.data)
	if allow != nil {
		n = allow(n)
	}
	_, err := dst.Write(p.data[:n])
	return err == nil && n == len(p.data)
}
