package hub

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/edgehub-io/edgehub/cache"
	"github.com/edgehub-io/edgehub/hub/access"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/proxy/authn"
	"github.com/edgehub-io/edgehub/proxy/topology"
)

// offline returns since when the node cannot reach the cloud, or "" while it can.
func (h *Hub) offline() string {
	state := h.upstream.State()
	switch {
	case state.Refused:
		return h.creds.Refused(state)
	case state.Up:
		return ""
	}
	return fmt.Sprintf("offline since %s: no apiserver can be reached, and the node is served from the cache",
		state.Since.UTC().Format(time.RFC3339))
}

// cacheHealth is cache.Health, also with why nothing is served from the cache.
func (h *Hub) cacheHealth() (views int, bytes int64, trouble string) {
	views, bytes, trouble = h.cache.Health()
	return views, bytes, cmp.Or(h.binding.Withheld(), trouble)
}

// cacheTrouble returns what is wrong with the cache, or "".
func (h *Hub) cacheTrouble() string {
	_, _, trouble := h.cacheHealth()
	return trouble
}

// status returns one line for `systemctl status`.
func (h *Hub) status() string {
	return cmp.Or(h.offline(), h.node.Missing(), h.node.Clone(), "online")
}

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
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+h.config.ServeAddress+api.Healthz, http.NoBody)
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

// nodeIsAway reports whether the node cannot use the cloud: no apiserver can be reached, or
// they refuse the node's credentials.
func (h *Hub) nodeIsAway() bool {
	select {
	case <-h.upstream.Lost(authn.AsNode(context.Background())):
		return true
	default:
		return false
	}
}

// cacheState is the answer to GET /debug/cache.
type cacheState struct {
	Cloud      api.CloudState    `json:"cloud"`
	Clone      string            `json:"clone,omitempty"`      // another machine runs as this node, and what to do
	Transforms []string          `json:"transforms,omitempty"` // that are active
	PodAccess  *api.PodAccess    `json:"podAccess,omitempty"`
	Services   *topology.Summary `json:"serviceFilters,omitempty"`
	Views      []cache.ViewState `json:"views"`
}

func (h *Hub) cacheState() cacheState {
	up := h.upstream.State()
	state := cacheState{Cloud: api.CloudState{Up: up.Up, Since: up.Since}, Clone: h.node.Clone(), Views: h.cache.State(), PodAccess: h.podAccessState()}
	state.Transforms, state.Services = h.transforms.names, h.transforms.topology.Summary()
	for _, s := range up.Servers {
		one := api.UpstreamState{Address: s.Address, Up: s.Up, Since: s.Since}
		if s.Err != nil {
			one.Error = s.Err.Error()
		} else if s.Refused != nil {
			one.Error = s.Refused.Error()
		}
		state.Cloud.APIServers = append(state.Cloud.APIServers, one)
	}
	return state
}
