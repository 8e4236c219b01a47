package hub

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehub-io/edgehub/hub/guard"
	"github.com/edgehub-io/edgehub/hub/servertls"
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
