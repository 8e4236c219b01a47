package access

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehub-io/edgehub/cache/quota"
	"github.com/edgehub-io/edgehub/proxy/limits"
)

// maxChecks is how many connections are checked at a time. They share scans, so that many cost
// little more than one. The others wait in the kernel. maxChecks must be small compared with the
// reserve, which a flood of unchecked connections would use up otherwise.
const maxChecks = 64

// sendBuffer is how many bytes of a response the kernel may buffer for a client that does not
// read. On loopback it would buffer megabytes by default, which count as the hub's memory.
const sendBuffer = 128 << 10

// Budget is how many connections may be open at several addresses together, and how much of the
// CPU those may take that are not the node's.
type Budget struct {
	max      int64
	open     atomic.Int64
	shares   *limits.Shares // by peer, of the connections that are not the node's
	pods     *limits.Shares // the same, of those at addresses for pods
	turns    *quota.Queue   // by peer, for connections that are not the node's and use the CPU before a request has arrived
	refusals *limits.Costs  // by peer; see pay
	large    *limits.Shares // of largePool, in parts; nil: there is none
}

// NewBudget returns a Budget of maxOpen connections. It has as many turns as there are cores: a TLS handshake takes about
// a millisecond, and Go's scheduler serves goroutines in the order in which they can run, so that each of the node's waits
// for those few, and not for every connection.
func NewBudget(maxOpen int) *Budget {
	return &Budget{
		max: int64(maxOpen), shares: limits.NewShares(maxOpen * 3 / 4), pods: limits.NewShares(maxOpen / 2),
		turns: quota.NewQueue(runtime.GOMAXPROCS(0), 0), refusals: limits.NewCosts(refusalsBurst, refusalsRate),
	}
}

// WithLargeHeaders adds a pool for headers of more than 16 KiB: one peer gets a third of what others leave of it.
func (b *Budget) WithLargeHeaders() *Budget {
	b.large = limits.NewShares(largePool / largePart)
	return b
}

// Listener is an address's listener with a limit on open connections, from a Budget. The last
// quarter of that is reserved for the node's own programs, so that nobody can lock kubelet out. Of
// the rest, one peer gets a third of what others leave, as limits.Shares says, and a pod a third of
// what other pods leave of half of the budget, so that they lock out neither each other nor other
// users of the node. A connection is accepted when it is found whose it is; all that are looked for
// meanwhile, or are never found, are one peer. Connections beyond are closed at once.
//
// It accepts in a goroutine of its own, from the first Accept until Close. After Close, Accept
// returns the connections that it had accepted by then: their clients have begun a request, and
// the next process, which gets those that wait in the kernel, knows nothing of it.
type Listener struct {
	*net.TCPListener
	budget    *Budget
	shares    []*limits.Shares // of the budget, each of which limits it
	free, max int64            // of the budget, for those who are not the node, and those who are
	identify  Identify
	isSlow    func(net.Conn) bool // whether identify takes longer than others should wait; nil: never
	log       *slog.Logger
	logLimit  *logLimit
	refused   prometheus.Counter

	open     atomic.Int64  // at this address
	checking chan struct{} // holds one for each connection that is being checked
	start    sync.Once
	accepted chan acceptResult
	checks   sync.WaitGroup
	closing  sync.Once
	closed   chan struct{} // closed by Close
	done     chan struct{} // closed when nothing will be accepted any more

	mu   sync.Mutex
	mute map[*limitedConn]struct{} // those that have sent no request yet
}

// muteTimeout is how long a client that has connected may wait before it sends a request. Then net/http takes its connection for an
// idle one, which Shutdown closes.
const muteTimeout = 5 * time.Second

// lastAccept is how long after Close a connection waits for an Accept. A server that stops calls
// it at once.
const lastAccept = time.Second

type acceptResult struct {
	conn net.Conn
	err  error
}

func newListener(l *net.TCPListener, b *Budget, forPods bool, identify Identify, refused prometheus.Counter, log *slog.Logger) *Listener {
	free, all, shares := b.max*3/4, b.max, []*limits.Shares{b.shares}
	together := min(maxChecks, max(1, (all-free)/2))
	if forPods {
		all, shares = free, append(shares, b.pods)
	}
	return &Listener{
		TCPListener: l, budget: b, shares: shares, free: free, max: all, identify: identify, log: log, logLimit: newLogLimit(), refused: refused,
		checking: make(chan struct{}, together), accepted: make(chan acceptResult), closed: make(chan struct{}), done: make(chan struct{}),
		mute: map[*limitedConn]struct{}{},
	}
}

// Accept returns the next connection within the limit.
func (l *Listener) Accept() (net.Conn, error) {
	l.start.Do(func() { go l.run() })
	select {
	case a := <-l.accepted:
		return a.conn, a.err
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close closes the listener and ends Accept. Accepted connections stay open.
func (l *Listener) Close() error {
	l.closing.Do(func() { close(l.closed) })
	return l.TCPListener.Close()
}

// AwaitRequests returns when all connections have sent their first request, or have been open for muteTimeout, or ctx ends. It is called
// after Close and before Shutdown, after which net/http answers no request that it reads, and clients see the end of the connection.
func (l *Listener) AwaitRequests(ctx context.Context) {
	select {
	case <-l.done:
	case <-ctx.Done():
	}
	l.mu.Lock()
	mute := slices.Collect(maps.Keys(l.mute))
	l.mu.Unlock()
	for _, c := range mute {
		select {
		case <-c.begun:
		case <-time.After(time.Until(c.accepted.Add(muteTimeout))):
		case <-ctx.Done():
			return
		}
	}
}

// Full reports whether all connections that are not reserved are taken.
func (l *Listener) Full() bool { return l.budget.open.Load() >= l.free }

func (l *Listener) run() {
	defer close(l.done)
	defer l.checks.Wait()
	for {
		tcp, err := l.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			l.deliver(acceptResult{err: err}) // http.Server backs off before it tries again
			continue
		}
		_ = tcp.SetWriteBuffer(sendBuffer) // fails if the connection is closed
		l.open.Add(1)
		conn := newConn(tcp, l)
		open := l.budget.open.Add(1)
		if open > l.max {
			l.reject(conn)
			continue
		}
		l.checking <- struct{}{}
		l.checks.Go(func() {
			if l.find(conn, open <= l.free) {
				l.deliver(acceptResult{conn: conn})
			} else {
				l.reject(conn)
			}
		})
	}
}

// find reports whether a connection is the node's, or one of those that are free, of which its peer has its share. One
// that has to be looked for counts as unfound until then, and others do not wait for it.
func (l *Listener) find(conn *limitedConn, isFree bool) bool {
	checked := sync.OnceFunc(func() { <-l.checking })
	defer checked()
	if l.isSlow != nil && l.isSlow(conn.TCPConn) {
		if !conn.enter(unfound) {
			return false
		}
		checked()
	}
	conn.isNode, conn.peer = l.identify(conn.TCPConn)
	return conn.isNode || isFree && conn.enter(conn.peer)
}

func (l *Listener) deliver(a acceptResult) {
	select {
	case l.accepted <- a:
		return
	case <-l.closed:
	}
	select {
	case l.accepted <- a:
	case <-time.After(lastAccept):
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
		l.log.Warn("a connection was refused: too many are open, or too many of one client; the last quarter is for the node's own programs. See who has them (ss -tnp), or raise --max-connections",
			"open", l.budget.open.Load(), "max-connections", l.budget.max, "remote", remote)
	}
}

// Connections has the metrics about the connections of all ports.
type Connections struct {
	registry prometheus.Registerer
	refused  *prometheus.CounterVec

	mu    sync.Mutex
	ports map[string][]*Listener // by flag; one for each address
}

// NewConnections registers the metrics on r.
func NewConnections(r prometheus.Registerer) *Connections {
	c := &Connections{registry: r, ports: map[string][]*Listener{}, refused: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "edgehub_connections_refused_total",
		Help: "Connections that were closed since too many were open, or since too many requests of their client were refused, by the flag of their port.",
	}, []string{"port"})}
	r.MustRegister(c.refused)
	return c
}

// Limit returns l with connections of budget, for the port of this flag. The addresses of one flag
// share their metrics. At an address for pods nobody is the node.
func (c *Connections) Limit(flag string, l *net.TCPListener, budget *Budget, forPods bool, callers *Callers, log *slog.Logger) *Listener {
	port, identify, isSlow := strings.TrimPrefix(flag, "--"), callers.Identify, (func(net.Conn) bool)(nil)
	if forPods {
		identify, isSlow = callers.Stranger, callers.IsSlow
	}
	listener := newListener(l, budget, forPods, identify, c.refused.WithLabelValues(port), log.With("port", port))
	listener.isSlow = isSlow
	c.mu.Lock()
	c.ports[port] = append(c.ports[port], listener)
	isFirst := len(c.ports[port]) == 1
	c.mu.Unlock()
	if isFirst {
		c.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "edgehub_connections",
			Help:        "Open connections, by the flag of their port.",
			ConstLabels: prometheus.Labels{"port": port},
		}, func() float64 { return c.open(port) }))
	}
	return listener
}

// open returns how many connections a port has, at all its addresses.
func (c *Connections) open(port string) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var sum int64
	for _, l := range c.ports[port] {
		sum += l.open.Load()
	}
	return float64(sum)
}
