package hub

import (
	"context"
	"fmt"
	"time"

	"github.com/edgehub-io/edgehub/cache"
	"github.com/edgehub-io/edgehub/ota/nodeapi"
	"github.com/edgehub-io/edgehub/proxy/authn"
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
	Cloud nodeapi.CloudState `json:"cloud"`
	Views []cache.ViewState  `json:"views"`
}

func (h *Hub) cacheState() cacheState {
	up := h.upstream.State()
	state := cacheState{Cloud: nodeapi.CloudState{Up: up.Up, Since: up.Since}, Views: h.cache.State()}
	for _, s := range up.Servers {
		one := nodeapi.APIServerState{Address: s.Address, Up: s.Up, Since: s.Since}
		if s.Err != nil {
			one.Error = s.Err.Error()
		} else if s.Refused != nil {
			one.Error = s.Refused.Error()
		}
		state.Cloud.APIServers = append(state.Cloud.APIServers, one)
	}
	return state
}
