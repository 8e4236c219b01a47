package hub

import (
	"cmp"
	"errors"
	"sync/atomic"
	"time"

	"github.com/edgehub-io/edgehub/cache"
	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/ownnode"
	"github.com/edgehub-io/edgehub/hub/servertls"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/proxy/topology"
)

// state is how the hub is, for systemd, for the node's API and for the page. It is safe for concurrent use.
type state struct {
	config     *config.Config
	cloud      *cloud
	cache      *cache.Cache
	node       *ownnode.Node
	transforms *transforms
	pods       *podAccess // nil: pods do not use the hub
	routes     *podRoutes
	clusterIP  *clusterIP
	cert       *servertls.Certificate // nil: no port needs one
	serving    atomic.Bool
}

// cacheHealth is cache.Health, also with why nothing is served from the cache.
func (s *state) cacheHealth() (views int, bytes int64, trouble string) {
	views, bytes, trouble = s.cache.Health()
	return views, bytes, cmp.Or(s.cloud.binding.Withheld(), trouble)
}

// cacheTrouble returns what is wrong with the cache, or "".
func (s *state) cacheTrouble() string {
	_, _, trouble := s.cacheHealth()
	return trouble
}

// status returns one line for `systemctl status`.
func (s *state) status() string {
	return cmp.Or(s.cloud.offline(), s.node.Missing(), s.node.Clone(), "online")
}

// ready returns why the hub does not serve the node, or nil.
func (s *state) ready() error {
	if !s.serving.Load() {
		return errors.New("the hub is stopping")
	}
	return s.cloud.creds.Missing()
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

func (s *state) ofCache() cacheState {
	up := s.cloud.upstream.State()
	state := cacheState{
		Cloud: api.CloudState{Up: up.Up, Since: up.Since}, Clone: s.node.Clone(), Views: s.cache.State(), PodAccess: s.podAccess(),
		Transforms: s.transforms.names, Services: s.transforms.topology.Summary(),
	}
	for _, server := range up.Servers {
		one := api.UpstreamState{Address: server.Address, Up: server.Up, Since: server.Since}
		if server.Err != nil {
			one.Error = server.Err.Error()
		} else if server.Refused != nil {
			one.Error = server.Refused.Error()
		}
		state.Cloud.APIServers = append(state.Cloud.APIServers, one)
	}
	return state
}

// podAccess returns nil if pods are not led to the hub.
func (s *state) podAccess() *api.PodAccess {
	if s.pods == nil {
		return nil
	}
	access := &api.PodAccess{
		Addresses: s.config.PodServers(), CACreated: s.pods.issued.Load().created.UTC().Truncate(time.Second), ClusterIP: s.clusterIP.state(),
	}
	var err error
	if access.Pods, err = s.routes.find(routesMaxAge); err != nil {
		access.Unknown = err.Error()
	}
	return access
}

// certificates are those that expire. The hub's own do not: that of the node's CA, and a self-signed one.
func (s *state) certificates() (list []api.Certificate) {
	if end, ok := s.cloud.creds.Expires(); ok {
		list = append(list, api.Certificate{Name: "node", Expires: end})
	}
	if s.cert == nil {
		return list
	}
	end, ok := s.cert.Expires()
	if ok && s.config.SecureAddress != "" {
		list = append(list, api.Certificate{Name: "pods", Expires: end})
	}
	if ok && s.config.ServeClientCAFile != "" {
		list = append(list, api.Certificate{Name: "api", Expires: end})
	}
	return list
}
