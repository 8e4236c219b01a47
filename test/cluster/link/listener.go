package link

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// openBacklog is the length of the queue of connections not yet accepted;
	// Linux's default for net.core.somaxconn.
	openBacklog = 4096
	// plugTimeout is how long one connection attempt may take. Linux answers it at
	// once unless the queue is full: then it is never answered.
	plugTimeout = time.Second
	maxPlugs    = 16
)

// listener is a TCP listener that can stop answering. Linux drops a SYN when
// the queue of connections not yet accepted is full, and that is just what a
// black hole looks like to the one who connects; so plug makes the queue as
// short as it gets and fills it with connections of its own.
type listener struct {
	*net.TCPListener

	mu        sync.Mutex
	accepting chan struct{}       // closed while connections are accepted
	plugs     map[string]net.Conn // by the local address of the plug
	closing   chan struct{}       // closed by Close
	served    chan struct{}       // closed when serve has returned
}

func newListener(addr string) (*listener, error) {
	tcp, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	l := &listener{
		TCPListener: tcp.(*net.TCPListener),
		accepting:   make(chan struct{}),
		plugs:       map[string]net.Conn{},
		closing:     make(chan struct{}),
		served:      make(chan struct{}),
	}
	close(l.accepting)
	return l, nil
}

// serve hands each new connection to forward until the listener is closed. It
// must be called once, and forward must not block.
func (l *listener) serve(forward func(*net.TCPConn)) {
	defer close(l.served)
	for {
		select {
		case <-l.resumed():
		case <-l.closing:
			return
		}
		client, err := l.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // paused, or a connection that is gone already
			continue
		case l.isPlug(client):
			_ = client.Close()
		default:
			forward(client)
		}
	}
}

// Close closes the listener, and returns when what it has accepted is with
// forward; the system resets what it has not accepted.
func (l *listener) Close() error {
	err := l.stop()
	<-l.served
	return err
}

func (l *listener) stop() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropPlugsLocked()
	close(l.closing)
	return l.TCPListener.Close()
}

// plug stops accepting, and fills the queue until nothing answers any more.
func (l *listener) plug() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.accepting:
		l.accepting = make(chan struct{})
	default:
		return nil // plugged already
	}
	if err := l.SetDeadline(time.Unix(1, 0)); err != nil { // wakes up serve
		return err
	}
	if err := l.setBacklog(0); err != nil {
		return err
	}
	dialer := net.Dialer{Timeout: plugTimeout}
	for range maxPlugs {
		full, err := l.isFull()
		if err != nil || full {
			return err
		}
		// An attempt that fails proves nothing: on a busy machine it may not have begun in time.
		if plug, err := dialer.Dial("tcp", l.Addr().String()); err == nil {
			l.plugs[plug.LocalAddr().String()] = plug
		}
	}
	return fmt.Errorf("link: black hole at %s: it still answers after %d connections", l.Addr(), maxPlugs)
}

// isFull reports whether the system answers no further connection: the queue of those not yet
// accepted is longer than its limit.
func (l *listener) isFull() (full bool, err error) {
	raw, err := l.SyscallConn()
	if err != nil {
		return false, err
	}
	controlErr := raw.Control(func(fd uintptr) {
		var info *unix.TCPInfo
		// Of a socket that listens, these two fields are the queue's length and its limit: see
		// tcp_get_info in Linux' net/ipv4/tcp.c.
		if info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			full = info.Unacked > info.Sacked
		}
	})
	return full, errors.Join(err, controlErr)
}

// unplug accepts again.
func (l *listener) unplug() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.accepting:
		return nil
	default:
	}
	l.dropPlugsLocked()
	if err := l.setBacklog(openBacklog); err != nil {
		return err
	}
	if err := l.SetDeadline(time.Time{}); err != nil {
		return err
	}
	close(l.accepting)
	return nil
}

// dropPlugsLocked closes the plugs but remembers them: serve has yet to take
// them out of the queue.
func (l *listener) dropPlugsLocked() {
	for _, plug := range l.plugs {
		_ = plug.Close()
	}
}

func (l *listener) isPlug(client *net.TCPConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	address := client.RemoteAddr().String()
	_, ok := l.plugs[address]
	delete(l.plugs, address)
	return ok
}

func (l *listener) resumed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.accepting
}

// setBacklog calls listen(2) again, which on a listening socket changes nothing
// but the length of the queue.
func (l *listener) setBacklog(n int) error {
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	var listenErr error
	if err := raw.Control(func(fd uintptr) { listenErr = syscall.Listen(int(fd), n) }); err != nil {
		return err
	}
	return listenErr
}
