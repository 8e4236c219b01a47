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
	"github.com/edgehub-io/edgehub/hub/credentials"
	"github.com/edgehub-io/edgehub/hub/csrf"
	"github.com/edgehub-io/edgehub/hub/servertls"
	"github.com/edgehub-io/edgehub/ota"
	"github.com/edgehub-io/edgehub/ota/webtoken"
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

// listen opens the port of this flag, with connections of this budget. It does nothing for an empty
// address. At an address for pods nobody is the node.
func (h *Hub) listen(flag, address string, server *http.Server, budget *access.Budget, forPods bool) error {
	if address == "" {
		return nil
	}
	l, err := h.sockets.Take(address)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return fmt.Errorf("%s: the socket from systemd at %s is not for TCP", flag, l.Addr())
	}
	h.serve(flag, h.conns.Limit(flag, tcp, budget, forPods, h.callers, h.log), server)
	return nil
}

// serve adds a port. It sets what the servers of all ports have in common.
func (h *Hub) serve(name string, l net.Listener, server *http.Server) {
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return authn.ConnContext(h.callers.ConnContext(ctx, c))
	}
	server.ConnState = access.ConnState
	server.ReadHeaderTimeout = headerTimeout
	server.IdleTimeout = keepAlive
	server.HTTP2 = &http.HTTP2Config{MaxReadFrameSize: frameSize, SendPingTimeout: pingAfter, PingTimeout: pingAfter}
	server.ErrorLog = slog.NewLogLogger(h.log.With("port", name).Handler(), slog.LevelDebug)
	p := port{name: name, listener: l, server: server}
	if server.TLSConfig != nil && server.MaxHeaderBytes > proxyHeader {
		p.http2 = limitHTTP2(server)
	}
	h.ports = append(h.ports, p)
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
func (h *Hub) listenPlain() error {
	who := access.CheckCSRF(authn.LoopbackFor(h.callers.Refuse))
	server := &http.Server{Handler: h.proxy.Handler(who), MaxHeaderBytes: largeHeader}
	return h.listen("--proxy-port", h.config.ProxyAddress, server, h.proxyConns, false)
}

// listenTLS opens the proxy port over TLS.
func (h *Hub) listenTLS() error {
	if h.config.SecureAddress == "" {
		return nil // without reading or creating a certificate
	}
	cert, err := h.servingCert()
	if err != nil {
		return err
	}
	who := authn.ClientCert("system:node:"+h.config.NodeName, h.creds.ClientCAs, h.nodeIsAway, h.config.OfflineTokenGrace)
	handler := h.proxy.Handler(who)
	for _, address := range h.config.PodServers() {
		server := &http.Server{Handler: handler, MaxHeaderBytes: largeHeader, TLSConfig: h.pods.serverConfig()}
		if err := h.listen("--dummy-if-ip", address, server, h.proxyConns, true); err != nil {
			return fmt.Errorf("%w: the address has to be there first, on a dummy interface; edgehub install sets that up", err)
		}
	}
	// A certificate that has expired is enough, or none, if it is kubelet that calls, and none of its probes: see OrOwnProgram.
	program := access.CheckCSRF(authn.LoopbackFor(h.callers.RefuseOthers))
	kubelet := &credentials.Kubelet{Kubeconfig: h.config.KubeletKubeconfig}
	own := h.proxy.Handler(authn.OrOwnProgram(who, program, h.nodeIsAway, kubelet.Lapsed))
	server := &http.Server{Handler: own, MaxHeaderBytes: largeHeader, TLSConfig: cert.ServerConfig()}
	return h.listen("--proxy-secure-port", h.config.SecureAddress, server, h.proxyConns, false)
}

// listenAPI opens the port of the node's HTTP API: over plain HTTP on loopback for programs
// outside of containers, or over TLS for clients with a certificate.
func (h *Hub) listenAPI(api http.Handler, r prometheus.Registerer) error {
	// What a web page sends is refused before it could count for anybody's.
	guarded := csrf.Handler(access.SlowDown(api, webtoken.FromBrowser))
	server := &http.Server{Handler: guarded, MaxHeaderBytes: ota.MaxHeaderBytes - headerSlack}
	if h.config.ServeClientCAFile == "" {
		server.Handler = h.callers.ForAPI(h.config.ServeToContainers, r).Admit(server.Handler)
	} else {
		cas, err := servertls.NewClientCAs(h.config.ServeClientCAFile, h.log)
		if err != nil {
			return err
		}
		cert, err := h.servingCert()
		if err != nil {
			return err
		}
		server.Handler, server.TLSConfig = cas.Admit(server.Handler), cert.ServerConfig()
	}
	return h.listen("--serve-port", h.config.ServeAddress, server, access.NewBudget(h.config.MaxConnections), false)
}

// servingCert returns the certificate that all TLS ports share. It reads the certificate once.
func (h *Hub) servingCert() (*servertls.Certificate, error) {
	if h.cert == nil {
		cert, err := servertls.NewCertificate(h.config, h.log)
		if err != nil {
			return nil, err
		}
		h.cert = cert
	}
	return h.cert, nil
}
