package access

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/peer"
)

// Callers decides who gets the node's identity on the plain port: the node's own programs,
// which run as one of --node-identity-users outside of containers. A connection is checked
// once.
type Callers struct {
	peers    *peer.Peers // nil: callers are not checked
	log      *slog.Logger
	refused  *prometheus.CounterVec
	logLimit *logLimit
}

// NewCallers tests whether callers can be identified on this machine. It fails only with
// --caller-check=required.
func NewCallers(c *config.Config, r prometheus.Registerer, log *slog.Logger) (*Callers, error) {
	cs := &Callers{log: log, logLimit: newLogLimit(), refused: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "edgehub_proxy_callers_refused_total",
		Help: "Requests without credentials that did not get the node's identity, by what their caller is: not-local, user, container, or unknown.",
	}, []string{"reason"})}
	on := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "edgehub_proxy_caller_check",
		Help: "1 if the node's identity is lent to the node's own programs only, 0 if to whoever reaches --proxy-port.",
	})
	r.MustRegister(cs.refused, on)
	for _, reason := range peer.Reasons() {
		cs.refused.WithLabelValues(string(reason))
	}
	err := errors.New("--caller-check=off")
	if c.CallerCheck != config.CheckOff {
		cs.peers, err = newPeers(c.IdentityUIDs)
	}
	switch {
	case err == nil:
		on.Set(1)
	case c.CallerCheck == config.CheckRequired:
		return nil, fmt.Errorf("--caller-check=required: programs that call cannot be told apart: %w", err)
	case c.ProxyAddress != "":
		log.Warn("whoever reaches --proxy-port gets the node's identity there, pods on the host's network among them; mend what is missing, or turn that port off with --proxy-port=0", "port", c.ProxyAddress, "why", err)
	}
	return cs, nil
}

func newPeers(users []uint32) (*peer.Peers, error) {
	peers, err := peer.New(users)
	if err != nil {
		return nil, err
	}
	if err := peers.SelfTest(); err != nil {
		return nil, err
	}
	return peers, nil
}

type connKey struct{}

// clientConn is a connection with the result of the check of its peer.
type clientConn struct {
	peer.Conn
	peers *peer.Peers // nil: callers are not checked

	mu      sync.Mutex
	known   bool
	refusal error

	named sync.Once
	name  string // see PeerOf
}

// ConnContext is the http.Server.ConnContext for ports that use Refuse, Admit or PeerOf.
// Requests on a connection that is not TCP are refused.
func (c *Callers) ConnContext(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	tcp, ok := conn.(peer.Conn)
	if !ok {
		return ctx
	}
	return context.WithValue(ctx, connKey{}, &clientConn{Conn: tcp, peers: c.peers})
}

// Refuse returns why r's caller does not get the node's identity, as a message for the
// caller, or nil.
func (c *Callers) Refuse(r *http.Request) error {
	if c.peers == nil {
		return nil
	}
	conn, ok := r.Context().Value(connKey{}).(*clientConn)
	if !ok {
		return errors.New("its connection is not known")
	}
	err := conn.check(c.peers.Check)
	if err == nil {
		return nil
	}
	c.report(conn, err)
	return fmt.Errorf("%w: send a bearer token, which in a pod is its service account's, in /var/run/secrets/kubernetes.io/serviceaccount/token", err)
}

// check runs the port's check and keeps its result for later requests, since a socket keeps
// its peer for life. It does not keep the result that the peer could not be identified.
func (k *clientConn) check(check func(peer.Conn) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.known {
		k.refusal = check(k.Conn)
		var refusal *peer.Refusal
		k.known = !errors.As(k.refusal, &refusal) || refusal.Reason != peer.Unknown
	}
	return k.refusal
}

// IsNode reports whether the peer of conn is one of the node's own programs. It is true if
// callers are not checked.
func (c *Callers) IsNode(conn net.Conn) bool {
	if c.peers == nil {
		return true
	}
	tcp, ok := conn.(peer.Conn)
	return ok && c.peers.Check(tcp) == nil
}

// report counts a refusal, and logs the caller at a limited rate.
func (c *Callers) report(conn *clientConn, err error) {
	var r *peer.Refusal
	if !errors.As(err, &r) {
		return
	}
	c.refused.WithLabelValues(string(r.Reason)).Inc()
	if !c.logLimit.allow(subject(r), time.Now()) {
		return
	}
	who := *r // others may be reading r
	c.peers.Identify(conn.Conn, &who)
	c.log.Warn("a caller without credentials did not get the node's identity; it has to send a token of its own, or, if it belongs to the node, to run outside of containers as one of --node-identity-users",
		callerAttrs(&who)...)
}

// callerAttrs returns what is known about a caller, as log attributes.
func callerAttrs(r *peer.Refusal) []any {
	words := []any{"reason", string(r.Reason), "remote", r.Remote}
	if r.Reason == peer.OtherUser || r.Reason == peer.InContainer {
		words = append(words, "uid", r.UID)
	}
	if r.PID != 0 {
		words = append(words, "pid", r.PID, "comm", r.Comm)
	}
	if r.In.Group != "" {
		words = append(words, "pod", r.In.Pod, "container", r.In.ID, "cgroup", r.In.Group)
	}
	if r.Err != nil {
		words = append(words, "err", r.Err)
	}
	return words
}

// subject returns the key by which log lines about a refusal are limited.
func subject(r *peer.Refusal) string {
	switch {
	case r.Reason == peer.InContainer:
		return r.In.Group
	case r.Reason == peer.OtherUser:
		return fmt.Sprint("user ", r.UID)
	case r.Remote.Addr().IsLoopback(): // any local program may choose among 16 million
		return string(r.Reason)
	default:
		return string(r.Reason) + " " + r.Remote.Addr().String()
	}
}
