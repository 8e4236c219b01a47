package hub

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"

	"github.com/edgehub-io/edgehub/hub/access"
	"github.com/edgehub-io/edgehub/ota/nodeapi"
)

// ready returns why the hub does not serve the node, or nil.
func (h *Hub) ready() error {
	if !h.serving.Load() {
		return errors.New("the hub is stopping")
	}
	return h.creds.Missing()
}

// alive requests the hub's health endpoint, as a program on the node would: an answer shows that
// the hub accepts connections and runs handlers. Over TLS any answer is good, since the request
// has no client certificate.
func (h *Hub) alive(ctx context.Context) error {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the request is to this very process, and has no secrets
	}}
	scheme, secure := "http", h.config.ServeClientCAFile != ""
	if secure {
		scheme = "https"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+h.config.ServeAddress+nodeapi.Healthz, http.NoBody)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		if ctx.Err() == nil && h.isFull("--serve-port") {
			return nil // a hub that is alive has rejected it, and a restart would only cut kubelet off
		}
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK && !secure {
		return fmt.Errorf("%s answers %s", req.URL, res.Status)
	}
	return nil
}

// isFull reports whether all unreserved connections of a flag's port are taken.
func (h *Hub) isFull(flag string) bool {
	for _, p := range h.ports {
		if l, ok := p.listener.(*access.Listener); ok && p.name == flag {
			return l.Full()
		}
	}
	return false
}

// status returns one line for `systemctl status`.
func (h *Hub) status() string {
	return cmp.Or(h.offline(), "online")
}
