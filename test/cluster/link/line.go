package link

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// lineChunk is how much of one connection passes at a time while the rate is
	// limited. It is small, so that connections take turns, and so that a
	// connection's inFlight chunks, 256 KiB, still are more than what is on its way
	// at 1.5 s round trip and 2 Mbit/s.
	lineChunk = 4 << 10
	// lineQueue is what waits for its turn: half a second at 1 Mbit/s, what a modem
	// holds. Whoever sends more is held up, as by a full window.
	lineQueue = 64 << 10
	// lineSegment is the size of a segment in most networks.
	lineSegment = 1460
)

// line is one direction of the link. All connections share it: their bytes leave
// one after the other, at its rate.
type line struct {
	rate atomic.Int64 // bytes a second; 0: no limit

	mu   sync.Mutex
	free time.Time // when all that was put on the line has left; guarded by mu
}

// setRate forgets what is on the line: it leaves as it was to.
func (l *line) setRate(bytesPerSecond int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rate.Store(int64(bytesPerSecond))
	l.free = time.Time{}
}

// chunk is how much may be read at once.
func (l *line) chunk() int {
	if l.rate.Load() > 0 {
		return lineChunk
	}
	return chunkSize
}

// room returns when the queue has room for more.
func (l *line) room() time.Time {
	rate := l.rate.Load()
	if rate == 0 {
		return time.Time{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.free.Add(-duration(lineQueue, rate))
}

// asRemote makes the kernel buffer less on a connection to the target than it does
// over loopback. What is sent behind a bulk on the same connection, the answer to a
// ping for instance, comes some ten seconds late then at 1 Mbit/s, as over a line
// with large buffers, and not half a minute.
func (l *line) asRemote(_, _ string, raw syscall.RawConn) error {
	if l.rate.Load() == 0 {
		return nil
	}
	var err error
	controlErr := raw.Control(func(fd uintptr) {
		err = errors.Join(
			syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, lineQueue),
			syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, lineSegment))
	})
	return errors.Join(controlErr, err)
}

// put queues n bytes, and returns when the last of them has left.
func (l *line) put(n int) time.Time {
	now := time.Now()
	rate := l.rate.Load()
	if rate == 0 {
		return now
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(duration(int64(n), rate))
	return l.free
}

func duration(bytes, rate int64) time.Duration {
	return time.Duration(bytes * int64(time.Second) / rate)
}
