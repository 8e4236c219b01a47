package access

import (
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxChecks is how many connections are looked at together, which costs little more than
// one. The others wait in the kernel: what is looked at has to be few beside what is
// reserved, or a flood would take that up.
const maxChecks = 64

// sendBuffer is how much of an answer, in bytes, the kernel may keep for a client that does
// not read; on loopback it would keep megabytes, which count as the hub's memory.
const sendBuffer = 128 << 10

// Listener is a port's listener with a bound on open connections. Above three
// quarters of it only the node's own programs are let in, so that no pod keeps
// kubelet out by opening more than its share. Others' connections are closed at
// once.
//
// It accepts by a goroutine of its own, from the first Accept on until Close.
type Listener struct {
	*net.TCPListener
	max, free int64 // free is how many are for everybody
	isNode    func(net.Conn) bool
	log       *slog.Logger
	logLimit  *logLimit
	refused   prometheus.Counter

	open     atomic.Int64
	checking chan struct{} // holds one for each connection that is looked at
	start    sync.Once
	accepted chan acceptResult // unbuffered: what nobody takes is closed by Close
	closing  sync.Once
	closed   chan struct{}
}

type acceptResult struct {
	conn net.Conn
	err  error
}

func newListener(l *net.TCPListener, maxOpen int, isNode func(net.Conn) bool, refused prometheus.Counter, log *slog.Logger) *Listener {
	free := int64(maxOpen) * 3 / 4
	together := min(maxChecks, max(1, (int64(maxOpen)-free)/2))
	return &Listener{
		TCPListener: l, max: int64(maxOpen), free: free, isNode: isNode, log: log, logLimit: newLogLimit(), refused: refused,
		checking: make(chan struct{}, together), accepted: make(chan acceptResult), closed: make(chan struct{}),
	}
}

func (l *Listener) Accept() (net.Conn, error) {
	l.start.Do(func() { go l.run() })
	select {
	case a := <-l.accepted:
		return a.conn, a.err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *Listener) Close() error {
	l.closing.Do(func() { close(l.closed) })
	return l.TCPListener.Close()
}

// Full reports whether as many connections are open as there are for everybody.
func (l *Listener) Full() bool { return l.open.Load() >= l.free }

func (l *Listener) run() {
	for {
		tcp, err := l.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			l.deliver(acceptResult{err: err}) // the server waits a moment before it tries again
			continue
		}
		_ = tcp.SetWriteBuffer(sendBuffer) // fails where it is closed
		conn := &limitedConn{TCPConn: tcp, open: &l.open}
		switch open := l.open.Add(1); {
		case open <= l.free:
			l.deliver(acceptResult{conn: conn})
		case open <= l.max:
			l.checking <- struct{}{}
			go l.check(conn)
		default:
			l.reject(conn)
		}
	}
}

func (l *Listener) check(conn *limitedConn) {
	defer func() { <-l.checking }()
	if !l.isNode(conn) {
		l.reject(conn)
		return
	}
	l.deliver(acceptResult{conn: conn})
}

func (l *Listener) deliver(a acceptResult) {
	select {
	case l.accepted <- a:
	case <-l.closed:
		if a.conn != nil {
			a.conn.Close()
		}
	}
}

func (l *Listener) reject(conn *limitedConn) {
	l.refused.Inc()
	remote := conn.RemoteAddr()
	conn.Close()
	if l.logLimit.allow("", time.Now()) {
		l.log.Warn("a connection was refused: too many are open; the last quarter is for the node's own programs. See who has them (ss -tnp), or raise --max-connections",
			"open", l.open.Load(), "max-connections", l.max, "remote", remote)
	}
}

// limitedConn counts until it is closed, also where it was upgraded.
type limitedConn struct {
	*net.TCPConn
	open *atomic.Int64
	once sync.Once
}

func (c *limitedConn) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.TCPConn.Close()
}

// Connections are the metrics of all ports.
type Connections struct {
	registry prometheus.Registerer
	refused  *prometheus.CounterVec
}

func NewConnections(r prometheus.Registerer) *Connections {
	c := &Connections{registry: r, refused: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "edgehub_connections_refused_total",
		Help: "Connections that were closed at once since too many were open, by the flag of their port.",
	}, []string{"port"})}
	r.MustRegister(c.refused)
	return c
}

// Limit bounds the connections of the port with this flag.
func (c *Connections) Limit(flag string, l *net.TCPListener, maxOpen int, isNode func(net.Conn) bool, log *slog.Logger) *Listener {
	port := strings.TrimPrefix(flag, "--")
	listener := newListener(l, maxOpen, isNode, c.refused.WithLabelValues(port), log.With("port", port))
	c.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "edgehub_connections",
		Help:        "Open connections, by the flag of their port.",
		ConstLabels: prometheus.Labels{"port": port},
	}, func() float64 { return float64(listener.open.Load()) }))
	return listener
}
