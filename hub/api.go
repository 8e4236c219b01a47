package hub

import (
	"crypto/tls"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehub-io/edgehub/hub/guard"
	"github.com/edgehub-io/edgehub/ota"
)

// listenAPI opens the port of the node's HTTP API: to programs outside of containers,
// over plain HTTP on loopback, or over TLS to those with a client certificate.
func (h *Hub) listenAPI(api http.Handler, r prometheus.Registerer) error {
	handler := guard.Programs(api)
	if h.config.ServeClientCAFile == "" {
		local := h.callers.ForAPI(h.config.ServeToContainers, r)
		if err := h.listenLimited(local.Admit(handler)); err != nil {
			return err
		}
		h.lastServer().ConnContext = h.callers.ConnContext
		return nil
	}
	cas, err := newClientCAs(h.config.ServeClientCAFile, h.log)
	if err != nil {
		return err
	}
	cert, err := h.servingCert()
	if err != nil {
		return err
	}
	if err := h.listenLimited(cas.admit(handler)); err != nil {
		return err
	}
	h.lastServer().TLSConfig = serverTLS(cert)
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
func (h *Hub) servingCert() (*servingCert, error) {
	if h.cert == nil {
		cert, err := newServingCert(h.config, h.log)
		if err != nil {
			return nil, err
		}
		h.cert = cert
	}
	return h.cert, nil
}

// serverTLS asks clients for a certificate, and leaves it to the handler what to
// do without one: a stranger is answered 401 instead of a broken handshake.
func serverTLS(cert *servingCert) *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: cert.get,
		ClientAuth:     tls.RequestClientCert,
	}
}
