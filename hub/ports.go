package hub

import (
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
	// keepAlive is how long an idle client connection is kept. It is longer than
	// the 90 s after which Go clients drop theirs, so that the hub never closes a
	// connection that a client is about to use.
	keepAlive = 3 * time.Minute
	// proxyHeader is how large the header of a request to the proxy ports may be, in bytes.
	// An apiserver allows a megabyte; many unfinished headers of that size would exhaust
	// the hub's memory before any client has to authenticate.
	proxyHeader = 64 << 10
)

// port is a bound address with the server that answers there.
type port struct {
	name     string
	listener net.Listener
	server   *http.Server
}

func (h *Hub) listen(flag, address string, handler http.Handler) error {
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
	h.serve(flag, h.conns.Limit(flag, tcp, h.config.MaxConnections, h.callers.IsNode, h.log), handler)
	return nil
}

// listenPlain opens the plain HTTP port, on which callers get the node's identity.
func (h *Hub) listenPlain() error {
	if h.config.ProxyAddress == "" {
		return nil
	}
	who := access.CheckCSRF(authn.LoopbackFor(h.callers.Refuse))
	if err := h.listen("--proxy-port", h.config.ProxyAddress, h.proxy.Handler(who)); err != nil {
		return err
	}
	h.lastServer().ConnContext = h.callers.ConnContext
	return nil
}

func (h *Hub) listenTLS() error {
	if h.config.SecureAddress == "" {
		return nil
	}
	cert, err := h.servingCert()
	if err != nil {
		return err
	}
	nodeUser := "system:node:" + h.config.NodeName
	handler := h.proxy.Handler(authn.ClientCert(nodeUser, h.creds.ClientCAs, h.nodeIsAway, h.config.OfflineTokenGrace))
	if err := h.listen("--proxy-secure-port", h.config.SecureAddress, handler); err != nil {
		return err
	}
	h.lastServer().TLSConfig = cert.ServerConfig()
	h.lastServer().ConnContext = h.callers.ConnContext
	return nil
}

func (h *Hub) serve(name string, l net.Listener, handler http.Handler) {
	h.ports = append(h.ports, port{name, l, &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       keepAlive,
		MaxHeaderBytes:    maxHeader(proxyHeader),
		ErrorLog:          slog.NewLogLogger(h.log.With("port", name).Handler(), slog.LevelDebug),
	}})
}

// listenAPI opens the port of the node's HTTP API: over plain HTTP on loopback for programs
// outside of containers, or over TLS for clients with a certificate.
func (h *Hub) listenAPI(api http.Handler, r prometheus.Registerer) error {
	handler := csrf.Handler(api)
	if h.config.ServeClientCAFile == "" {
		local := h.callers.ForAPI(h.config.ServeToContainers, r)
		if err := h.listenLimited(local.Admit(handler)); err != nil {
			return err
		}
		h.lastServer().ConnContext = h.callers.ConnContext
		return nil
	}
	cas, err := servertls.NewClientCAs(h.config.ServeClientCAFile, h.log)
	if err != nil {
		return err
	}
	cert, err := h.servingCert()
	if err != nil {
		return err
	}
	if err := h.listenLimited(cas.Admit(handler)); err != nil {
		return err
	}
	h.lastServer().TLSConfig = cert.ServerConfig()
	return nil
}

func (h *Hub) listenLimited(handler http.Handler) error {
	if err := h.listen("--serve-port", h.config.ServeAddress, handler); err != nil {
		return err
	}
	h.lastServer().MaxHeaderBytes = maxHeader(ota.MaxHeaderBytes)
	return nil
}

// maxHeader returns the MaxHeaderBytes with which net/http refuses headers above this size:
// net/http itself adds 4096 bytes. On a connection that has carried a request, it may have
// read another 4096 before it counts.
func maxHeader(bytes int) int { return bytes - 4096 }

// lastServer returns the server of the port that was opened last.
func (h *Hub) lastServer() *http.Server { return h.ports[len(h.ports)-1].server }

// servingCert returns the certificate that all TLS ports share, which is read once.
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
