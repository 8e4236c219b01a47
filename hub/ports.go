package hub

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"

	"github.com/edgehub-io/edgehub/hub/access"
	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/credentials"
	"github.com/edgehub-io/edgehub/hub/csrf"
	"github.com/edgehub-io/edgehub/hub/servertls"
	"github.com/edgehub-io/edgehub/hub/systemd"
	"github.com/edgehub-io/edgehub/ota"
	"github.com/edgehub-io/edgehub/proxy"
	"github.com/edgehub-io/edgehub/proxy/authn"
)

const (
	// headerTimeout is how long a client may take to send the header of a request.
	headerTimeout = 30 * time.Second
	// keepAlive is how long an idle client connection is kept. It is longer than the 90 s
	// after which Go clients close theirs, so that the hub never closes a connection that a
	// client is about to use.
	keepAlive = 3 * time.Minute
	// headerSlack is by how many bytes a header may exceed a server's MaxHeaderBytes. On a
	// connection that has carried a request it may be twice as many.
	headerSlack = 4096
	// proxyHeader limits the header of a request to the proxy ports to 16 KiB: a token has 1 to
	// 4 KiB, and other proxies allow 8. An apiserver allows a megabyte; unfinished headers of that
	// size on all connections, and all streams of each, would exhaust the hub's memory before any
	// client has to authenticate.
	proxyHeader = 16<<10 - headerSlack
	// largeHeader is the limit by HTTP/1.1, by which exec comes with its command in the URL. What
	// exceeds 16 KiB comes from the pool of proxyConns, and package proxy says for what it may be.
	largeHeader = 256<<10 - headerSlack
	// frameSize is that of HTTP/2's frames: for each connection the hub allocates as much as
	// the largest has announced. It is the least that HTTP/2 allows (RFC 9113, 4.2).
	frameSize = 16 << 10
	// pingAfter is for how long an HTTP/2 connection may be quiet before the hub sends a ping,
	// and how long the answer may take. A client cannot answer between the frames of a header, so
	// both together bound that as headerTimeout does, for which net/http has no setting in HTTP/2.
	pingAfter = headerTimeout / 2
)

// port is a bound address with the server that answers there.
type port struct {
	name     string
	listener net.Listener
	server   *http.Server
	http2    *http.Server // has HTTP/2's limits, and no connections; nil: those of server hold
}

// ports are all ports of the hub.
type ports struct {
	log        *slog.Logger
	callers    *access.Callers
	conns      *access.Connections
	proxyConns *access.Budget    // of all addresses of the proxy
	sockets    systemd.Listeners // inherited, and not used by a port
	local      *inproc
	all        []port // the first is local, for the hub's own requests

	requests context.Context // of all requests, which outlive Run's: they complete, or are cut
	cut      context.CancelFunc
}

// portHandlers are what is behind the ports.
type portHandlers struct {
	local *inproc
	proxy *proxy.Proxy
	cloud *cloud
	pods  *podAccess             // nil: pods do not use the hub
	cert  *servertls.Certificate // nil: no port needs one
	api   http.Handler
}

// openPorts opens all ports, which serve once they are run.
func openPorts(c *config.Config, o portHandlers, r prometheus.Registerer, log *slog.Logger) (*ports, error) {
	sockets, err := systemd.InheritListeners()
	if err != nil {
		return nil, err
	}
	callers, err := access.NewCallers(c, r, log)
	if err != nil {
		sockets.Close()
		return nil, err
	}
	p := &ports{
		log: log, callers: callers, conns: access.NewConnections(r), proxyConns: access.NewBudget(c.MaxConnections).WithLargeHeaders(),
		sockets: sockets, local: o.local,
	}
	p.requests, p.cut = context.WithCancel(context.Background())
	p.serve("in process", o.local, &http.Server{Handler: o.proxy.Handler(authn.Loopback), MaxHeaderBytes: proxyHeader})
	if err = p.listenAPI(c, o, r); err == nil {
		err = p.listenPlain(c, o)
	}
	if err == nil {
		err = p.listenTLS(c, o)
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// close closes all ports and connections at once.
func (p *ports) close() {
	p.cut()
	for _, one := range p.all {
		one.server.Close()
		one.listener.Close()
	}
	p.sockets.Close()
}

// listen opens the port of this flag, with connections of this budget. It does nothing for an empty
// address. At an address for pods nobody is the node.
func (p *ports) listen(flag, address string, server *http.Server, budget *access.Budget, forPods bool) error {
	if address == "" {
		return nil
	}
	l, err := p.sockets.Take(address)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return fmt.Errorf("%s: the socket from systemd at %s is not for TCP", flag, l.Addr())
	}
	p.serve(flag, p.conns.Limit(flag, tcp, budget, forPods, p.callers, p.log), server)
	return nil
}

// serve adds a port. It sets what the servers of all ports have in common.
func (p *ports) serve(name string, l net.Listener, server *http.Server) {
	server.BaseContext = func(net.Listener) context.Context { return p.requests }
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return authn.ConnContext(p.callers.ConnContext(ctx, c))
	}
	server.ConnState = access.ConnState
	server.ReadHeaderTimeout = headerTimeout
	server.IdleTimeout = keepAlive
	server.HTTP2 = &http.HTTP2Config{MaxReadFrameSize: frameSize, SendPingTimeout: pingAfter, PingTimeout: pingAfter}
	server.ErrorLog = slog.NewLogLogger(p.log.With("port", name).Handler(), slog.LevelDebug)
	one := port{name: name, listener: l, server: server}
	if server.TLSConfig != nil && server.MaxHeaderBytes > proxyHeader {
		one.http2 = limitHTTP2(server)
	}
	p.all = append(p.all, one)
}

// limitHTTP2 has a server accept headers of up to proxyHeader by HTTP/2, where each of 250 streams has one: net/http
// has the same limit for both protocols. Shutdown of what it returns has the connections end.
//
//nolint:staticcheck // net/http offers nothing instead of what is deprecated here
func limitHTTP2(server *http.Server) *http.Server {
	limits := &http.Server{
		MaxHeaderBytes: proxyHeader, ConnState: server.ConnState, IdleTimeout: server.IdleTimeout,
		HTTP2: server.HTTP2, ErrorLog: server.ErrorLog,
	}
	streams := &http2.Server{}
	if err := http2.ConfigureServer(limits, streams); err != nil {
		panic(err) // only a cipher suite of a TLSConfig makes it fail, and there is none
	}
	server.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){
		"h2": func(_ *http.Server, conn *tls.Conn, handler http.Handler) {
			options := &http2.ServeConnOpts{Handler: handler}
			if of, ok := handler.(interface{ BaseContext() context.Context }); ok { // net/http's: what ConnContext returned
				options.Context = of.BaseContext()
			}
			streams.ServeConn(conn, options)
		},
	}
	return limits
}

// listenPlain opens the plain HTTP port, on which callers get the node's identity.
func (p *ports) listenPlain(c *config.Config, o portHandlers) error {
	who := access.CheckCSRF(authn.LoopbackFor(p.callers.Refuse))
	server := &http.Server{Handler: o.proxy.Handler(who), MaxHeaderBytes: largeHeader}
	return p.listen("--proxy-port", c.ProxyAddress, server, p.proxyConns, false)
}

// listenTLS opens the proxy ports over TLS.
func (p *ports) listenTLS(c *config.Config, o portHandlers) error {
	if c.SecureAddress == "" {
		return nil
	}
	who := authn.ClientCert("system:node:"+c.NodeName, o.cloud.creds.ClientCAs, o.cloud.isAway, c.OfflineTokenGrace)
	handler := o.proxy.Handler(who)
	for _, address := range c.PodServers() {
		server := &http.Server{Handler: handler, MaxHeaderBytes: largeHeader, TLSConfig: o.pods.serverConfig()}
		if err := p.listen("--dummy-if-ip", address, server, p.proxyConns, true); err != nil {
			return fmt.Errorf("%w: the address has to be there first, on a dummy interface; edgehub install sets that up", err)
		}
	}
	// A certificate that has expired is enough, or none, if it is kubelet that calls, and none of its probes: see OrOwnProgram.
	program := access.CheckCSRF(authn.LoopbackFor(p.callers.RefuseOthers))
	kubelet := &credentials.Kubelet{Kubeconfig: c.KubeletKubeconfig}
	own := o.proxy.Handler(authn.OrOwnProgram(who, program, o.cloud.isAway, kubelet.Lapsed))
	server := &http.Server{Handler: own, MaxHeaderBytes: largeHeader, TLSConfig: o.cert.ServerConfig()}
	return p.listen("--proxy-secure-port", c.SecureAddress, server, p.proxyConns, false)
}

// listenAPI opens the port of the node's HTTP API: over plain HTTP on loopback for programs
// outside of containers, or over TLS for clients with a certificate.
func (p *ports) listenAPI(c *config.Config, o portHandlers, r prometheus.Registerer) error {
	server := &http.Server{Handler: csrf.Handler(o.api), MaxHeaderBytes: ota.MaxHeaderBytes - headerSlack}
	if c.ServeClientCAFile == "" {
		server.Handler = p.callers.ForAPI(c.ServeToContainers, r).Admit(server.Handler)
	} else {
		cas, err := servertls.NewClientCAs(c.ServeClientCAFile, p.log)
		if err != nil {
			return err
		}
		server.Handler, server.TLSConfig = cas.Admit(server.Handler), o.cert.ServerConfig()
	}
	return p.listen("--serve-port", c.ServeAddress, server, access.NewBudget(c.MaxConnections), false)
}

// servingCert reads or creates the certificate that all TLS ports share. It returns nil if there is none of these.
func servingCert(c *config.Config, log *slog.Logger) (*servertls.Certificate, error) {
	if c.SecureAddress == "" && c.ServeClientCAFile == "" {
		return nil, nil //nolint:nilnil // nobody asks for it
	}
	return servertls.NewCertificate(c, log)
}
