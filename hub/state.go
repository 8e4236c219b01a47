package hub

import (
	"context"
	"fmt"
	"time"

	"github.com/edgehub-io/edgehub/cache"
	"github.com/edgehub-io/edgehub/ota/nodeapi"
	"github.com/edgehub-io/edgehub/proxy/authn"
)

// offline says since when the node cannot reach the cloud, or nothing.
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

// nodeIsAway reports whether the node cannot reach the cloud, be it that nobody can, or
// that it is not let in.
func (h *Hub) nodeIsAway() bool {
	select {
	case <-h.upstream.Lost(authn.AsNode(context.Background())):
		return true
	default:
		return false
	}
}

// cacheState is what GET /debug/cache shows.
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
