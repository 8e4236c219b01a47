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
	// headerTimeout is how long a client may take over the header of a request.
	headerTimeout = 30 * time.Second
	// keepAlive is how long an idle client connection is kept. It is longer than
	// the 90 s after which Go clients drop theirs, so that the hub never closes a
	// connection that a client is about to use.
	keepAlive = 3 * time.Minute
	// proxyHeader is how large the header of a request to the proxy ports may be, in bytes.
	// An apiserver takes a megabyte; so many of it that never end would be more than the
	// hub has, and nobody has to say who he is before.
	proxyHeader = 64 << 10
)

// port is something that is served: a bound address and what answers there.
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

// listenPlain opens the port that lends the node's identity.
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

// listenAPI opens the port of the node's HTTP API: to programs outside of containers,
// over plain HTTP on loopback, or over TLS to those with a client certificate.
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

// maxHeader is the MaxHeaderBytes that has net/http refuse a header of more than
// so many bytes: it allows for 4096 more.
func maxHeader(bytes int) int { return bytes - 4096 }

// lastServer is that of the port opened last.
func (h *Hub) lastServer() *http.Server { return h.ports[len(h.ports)-1].server }

// servingCert is the certificate of all ports with TLS, read once.
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
