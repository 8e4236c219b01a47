package topology

import "slices"

// Summary describes a State for operators.
type Summary struct {
	Zone         string   `json:"zone,omitempty"`
	Pool         string   `json:"nodePool,omitempty"`
	PoolMembers  int      `json:"nodePoolMembers,omitempty"`
	PoolRefused  bool     `json:"nodePoolRefused,omitempty"` // the hub may not list the pool's nodes
	Services     int      `json:"annotatedServices"`
	UnknownValue []string `json:"servicesWithUnknownValue,omitempty"` // some of them
}

// Summary returns nil until the State was first wanted.
func (s *State) Summary() *Summary {
	select {
	case <-s.wanted:
	default:
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	const most = 20
	out := &Summary{
		Zone: s.place.zone, Pool: s.place.pool, PoolMembers: len(s.place.members), PoolRefused: s.place.membership == refused,
	}
	for name, service := range s.services {
		if service.Keys != "" || service.Discard || service.Listens {
			out.Services++
		}
		if _, known := scopeOf(service.Keys); !known {
			out.UnknownValue = append(out.UnknownValue, name.String())
		}
	}
	slices.Sort(out.UnknownValue)
	out.UnknownValue = out.UnknownValue[:min(most, len(out.UnknownValue))]
	return out
}
