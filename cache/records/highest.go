package records

import (
	"strconv"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/query"
)

// Highest is the highest resourceVersion that was seen of a resource.
type Highest struct {
	n    atomic.Uint64
	idle int // sweeps in a row that found nothing of the resource; guarded by Records.mu
}

// Raise is called with each version that is seen. One of 2^63 or more is made up: etcd
// counts in 63 bits.
func (h *Highest) Raise(version string) {
	if h == nil {
		return
	}
	n, err := strconv.ParseUint(version, 10, 63)
	if err != nil {
		return
	}
	for {
		old := h.n.Load()
		if n <= old || h.n.CompareAndSwap(old, n) {
			return
		}
	}
}

// lower is called with the version at which a store that was restored from a backup is.
func (h *Highest) lower(version string) {
	if n, err := strconv.ParseUint(version, 10, 63); err == nil && h.n.Load() > n {
		h.n.Store(n)
	}
}

// value is 0 where nothing was seen.
func (h *Highest) value() uint64 {
	if h == nil {
		return 0
	}
	return h.n.Load()
}

// Version is the version, or empty where nothing was seen.
func (h *Highest) Version() string { return versionOf(h.value()) }

func versionOf(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}

// MaxCounted bounds the resources whose versions are counted: twice as many as there may be
// views, because of some resources only records are left.
const MaxCounted = 8192

// Highest returns what counts the versions of a resource. It is nil, which has no version,
// while nothing of the resource is kept: a URL can name any resource.
//
// Each resource is counted by itself. Whoever can make up versions of one, such as an
// aggregated apiserver, does not affect those of others.
func (r *Records) Highest(resource schema.GroupVersionResource) *Highest {
	if r == nil {
		return nil
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.counted[resource.GroupResource()]
}

// Count is highest for a resource of which something is going to be kept. It returns nil
// where too many resources are counted.
func (r *Records) Count(resource schema.GroupVersionResource) *Highest {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.countLocked(resource.GroupResource())
}

func (r *Records) countLocked(resource schema.GroupResource) *Highest {
	h := r.counted[resource]
	if h == nil {
		if len(r.counted) >= MaxCounted {
			return nil
		}
		h = new(Highest)
		// What is parsed from a URL would keep all of the URL in memory.
		r.counted[schema.GroupResource{Group: strings.Clone(resource.Group), Resource: strings.Clone(resource.Resource)}] = h
	}
	h.idle = 0
	return h
}

// uncountLocked forgets the versions of resources of which there is neither a view nor a
// record. A view may come after viewed was made, so it takes two sweeps.
func (r *Records) uncountLocked(viewed map[string]map[query.UserResource]bool) {
	used := map[schema.GroupResource]bool{}
	for of := range r.of {
		used[of.Resource.GroupResource()] = true
	}
	for _, resources := range viewed {
		for of := range resources {
			used[of.Resource.GroupResource()] = true
		}
	}
	for resource, h := range r.counted {
		if h.idle++; used[resource] {
			h.idle = 0
		}
		if h.idle > 1 {
			delete(r.counted, resource)
		}
	}
}
