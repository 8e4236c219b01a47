package hub

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehub-io/edgehub/hub/access"
	"github.com/edgehub-io/edgehub/hub/csrf"
	"github.com/edgehub-io/edgehub/hub/servertls"
	"github.com/edgehub-io/edgehub/ota"
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
	// proxyHeader limits the header of a request to the proxy ports to 64 KiB. An apiserver
	// allows a megabyte; many unfinished headers of that size would exhaust the hub's
	// memory before any client has to authenticate.
	proxyHeader = 64<<10 - headerSlack
)

// port is a bound address with the server that answers there.
type port struct {
	name     string
	listener net.Listener
	server   *http.Server
}

// listen opens the port of this flag. It does nothing for an empty address.
func (h *Hub) listen(flag, address string, server *http.Server) error {
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
	h.serve(flag, h.conns.Limit(flag, tcp, h.config.MaxConnections, h.callers.IsNode, h.log), server)
	return nil
}

// serve adds a port. It sets what the servers of all ports have in common.
func (h *Hub) serve(name string, l net.Listener, server *http.Server) {
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return authn.ConnContext(h.callers.ConnContext(ctx, c))
	}
	server.ReadHeaderTimeout = headerTimeout
	server.IdleTimeout = keepAlive
	server.ErrorLog = slog.NewLogLogger(h.log.With("port", name).Handler(), slog.LevelDebug)
	h.ports = append(h.ports, port{name, l, server})
}

// listenPlain opens the plain HTTP port, on which callers get the node's identity.
func (h *Hub) listenPlain() error {
	who := access.CheckCSRF(authn.LoopbackFor(h.callers.Refuse))
	return h.listen("--proxy-port", h.config.ProxyAddress, &http.Server{Handler: h.proxy.Handler(who), MaxHeaderBytes: proxyHeader})
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
		err := h.listen("--dummy-if-ip", address, &http.Server{Handler: handler, MaxHeaderBytes: proxyHeader, TLSConfig: h.pods.serverConfig()})
		if err != nil {
			return fmt.Errorf("%w: the address has to be there first, on a dummy interface; edgehub install sets that up", err)
		}
	}
	program := access.CheckCSRF(authn.LoopbackFor(h.callers.RefuseOthers))
	return h.listen("--proxy-secure-port", h.config.SecureAddress, &http.Server{
		Handler: h.proxy.Handler(authn.OrOwnProgram(who, program, h.nodeIsAway)), MaxHeaderBytes: proxyHeader, TLSConfig: cert.ServerConfig(),
	})
}

// listenAPI opens the port of the node's HTTP API: over plain HTTP on loopback for programs
// outside of containers, or over TLS for clients with a certificate.
func (h *Hub) listenAPI(api http.Handler, r prometheus.Registerer) error {
	server := &http.Server{Handler: csrf.Handler(api), MaxHeaderBytes: ota.MaxHeaderBytes - headerSlack}
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
	return h.listen("--serve-port", h.config.ServeAddress, server)
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
