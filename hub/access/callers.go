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
	"github.com/edgehub-io/edgehub/hub/csrf"
	"github.com/edgehub-io/edgehub/hub/peer"
	"github.com/edgehub-io/edgehub/proxy/authn"
)

// checker checks the callers of one port, and counts and logs those that it refuses.
type checker struct {
	peers    *peer.Peers // nil: callers are not checked
	log      *slog.Logger
	refused  *prometheus.CounterVec
	logLimit *logLimit
}

func newChecker(r prometheus.Registerer, log *slog.Logger, refused prometheus.CounterOpts, reasons ...peer.Reason) checker {
	c := checker{log: log, logLimit: newLogLimit(), refused: prometheus.NewCounterVec(refused, []string{"reason"})}
	r.MustRegister(c.refused)
	for _, reason := range reasons {
		c.refused.WithLabelValues(string(reason))
	}
	return c
}

// refuse returns why check refuses the caller of r, or nil. It calls warn at a limited rate.
func (c *checker) refuse(r *http.Request, check func(peer.Conn) error, warn func(peer.Conn, *peer.Refusal)) error {
	if c.peers == nil {
		return nil
	}
	conn, ok := r.Context().Value(connKey{}).(*clientConn)
	if !ok {
		return errors.New("its connection is not known")
	}
	err := conn.check(check)
	if refusal, ok := errors.AsType[*peer.Refusal](err); ok {
		c.refused.WithLabelValues(string(refusal.Reason)).Inc()
		if c.logLimit.allow(subject(refusal), time.Now()) {
			warn(conn.Conn, refusal)
		}
	}
	return err
}

// Callers lends the node's identity on the plain port to the node's own programs: those that
// run as one of --node-identity-users, outside of containers. It checks a connection once.
type Callers struct{ checker }

// NewCallers tests whether callers can be identified on this machine. If not, it fails with
// --caller-check=required, and otherwise warns that callers are not checked.
func NewCallers(c *config.Config, r prometheus.Registerer, log *slog.Logger) (*Callers, error) {
	cs := &Callers{newChecker(r, log, prometheus.CounterOpts{
		Name: "edgehub_proxy_callers_refused_total",
		Help: "Requests without credentials that did not get the node's identity, by what their caller is: not-local, user, container, or unknown.",
	}, peer.Reasons()...)}
	on := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "edgehub_proxy_caller_check",
		Help: "1 if the node's identity is lent to the node's own programs only, 0 if to whoever reaches --proxy-port.",
	})
	r.MustRegister(on)
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

	name func() string // see PeerOf
}

// ConnContext is the http.Server.ConnContext for ports that use Refuse, Admit or PeerOf. If
// callers are checked, requests on a connection that is not TCP are refused.
func (c *Callers) ConnContext(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	tcp, ok := conn.(peer.Conn)
	if !ok {
		return ctx
	}
	client := &clientConn{Conn: tcp, peers: c.peers}
	client.name = sync.OnceValue(func() string { return c.nameOf(tcp) })
	return context.WithValue(ctx, connKey{}, client)
}

// Refuse returns why the caller of r does not get the node's identity, as a message for the
// caller, or nil.
func (c *Callers) Refuse(r *http.Request) error {
	err := c.refuse(r, c.peers.Check, func(conn peer.Conn, refusal *peer.Refusal) {
		who := *refusal // a copy: other requests may be reading refusal
		c.peers.Identify(conn, &who)
		c.log.Warn("a caller without credentials did not get the node's identity; it has to send a token of its own, or, if it belongs to the node, to run outside of containers as one of --node-identity-users",
			callerAttrs(&who)...)
	})
	if err != nil {
		return fmt.Errorf("%w: send a bearer token, which in a pod is its service account's, in /var/run/secrets/kubernetes.io/serviceaccount/token", err)
	}
	return nil
}

// RefuseOthers is Refuse for a port where callers prove who they are by other means, too: where
// callers cannot be told apart, it refuses all.
func (c *Callers) RefuseOthers(r *http.Request) error {
	if c.peers == nil {
		return errors.New("the hub cannot tell on this machine who calls, or is not to (--caller-check)")
	}
	return c.Refuse(r)
}

// CheckCSRF wraps next and denies the node's identity to requests that may come from a web
// page in a browser on this node. It does not check callers with credentials of their own: a
// website has none.
func CheckCSRF(next authn.Authenticator) authn.Authenticator {
	return func(r *http.Request) (authn.Identity, error) {
		id, err := next(r)
		if err != nil || id != authn.Node {
			return id, err
		}
		if err := csrf.Check(r); err != nil {
			return authn.Caller, fmt.Errorf("%w: %w; a caller with a bearer token of its own is not asked that", authn.ErrForbidden, err)
		}
		return id, nil
	}
}

// check runs the port's check and keeps the result for later requests, since the peer of a
// socket never changes. It does not keep the result that the peer could not be identified.
func (k *clientConn) check(check func(peer.Conn) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.known {
		k.refusal = check(k.Conn)
		refusal, ok := errors.AsType[*peer.Refusal](k.refusal)
		k.known = !ok || refusal.Reason != peer.Unknown
	}
	return k.refusal
}

// callerAttrs returns the log attributes of a caller.
func callerAttrs(r *peer.Refusal) []any {
	attrs := []any{"reason", string(r.Reason), "remote", r.Remote}
	if r.Reason == peer.OtherUser || r.Reason == peer.InContainer {
		attrs = append(attrs, "uid", r.UID)
	}
	if r.PID != 0 {
		attrs = append(attrs, "pid", r.PID, "comm", r.Comm)
	}
	if r.In.Group != "" {
		attrs = append(attrs, "pod", r.In.Pod, "container", r.In.ID, "cgroup", r.In.Group)
	}
	if r.Err != nil {
		attrs = append(attrs, "err", r.Err)
	}
	return attrs
}

// subject returns the key by which log lines about a refusal are limited.
func subject(r *peer.Refusal) string {
	switch {
	case r.Reason == peer.InContainer:
		return r.In.Group
	case r.Reason == peer.OtherUser:
		return fmt.Sprint("user ", r.UID)
	case r.Remote.Addr().IsLoopback(): // a local program may choose among 16 million addresses
		return string(r.Reason)
	default:
		return string(r.Reason) + " " + r.Remote.Addr().String()
	}
}
