package cache

import (
	"math/big"
	"strconv"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// highest is the highest resourceVersion that was seen of a resource.
type highest struct {
	n    atomic.Uint64
	idle int // sweeps in a row that found nothing of the resource; guarded by records.mu
}

// raise is called with each version that is seen. One of 2^63 or more is made up: etcd
// counts in 63 bits.
func (h *highest) raise(version string) {
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
func (h *highest) lower(version string) {
	if n, err := strconv.ParseUint(version, 10, 63); err == nil && h.n.Load() > n {
		h.n.Store(n)
	}
}

// value is 0 where nothing was seen.
func (h *highest) value() uint64 {
	if h == nil {
		return 0
	}
	return h.n.Load()
}

func (h *highest) version() string { return versionOf(h.value()) }

func versionOf(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}

// preceding is the highest version below another.
func preceding(version string) string {
	n, ok := new(big.Int).SetString(version, 10)
	if !ok {
		return ""
	}
	return n.Sub(n, big.NewInt(1)).String()
}

// following is the lowest version above another.
func following(version string) string {
	n, ok := new(big.Int).SetString(version, 10)
	if !ok {
		return "1"
	}
	return n.Add(n, big.NewInt(1)).String()
}

// higher returns the higher of two versions.
func higher(a, b string) string {
	if compare(a, b) >= 0 {
		return a
	}
	return b
}

// maxCounted bounds the resources whose versions are counted: there are at most maxViews
// views, and some resources of which only records are left.
const maxCounted = 2 * maxViews

// highest returns what counts the versions of a resource. It is nil, which has no version,
// while nothing of the resource is kept: a URL can name any resource.
//
// Each resource is counted by itself. Whoever can make up versions of one, such as an
// aggregated apiserver, does not affect those of others.
func (r *records) highest(resource schema.GroupVersionResource) *highest {
	if r == nil {
		return nil
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.counted[resource.GroupResource()]
}

// count is highest for a resource of which something is going to be kept. It returns nil
// where too many resources are counted.
func (r *records) count(resource schema.GroupVersionResource) *highest {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.countLocked(resource.GroupResource())
}

func (r *records) countLocked(resource schema.GroupResource) *highest {
	h := r.counted[resource]
	if h == nil {
		if len(r.counted) >= maxCounted {
			return nil
		}
		h = new(highest)
		// What is parsed from a URL would keep all of the URL in memory.
		r.counted[schema.GroupResource{Group: strings.Clone(resource.Group), Resource: strings.Clone(resource.Resource)}] = h
	}
	h.idle = 0
	return h
}

// uncountLocked forgets the versions of resources of which there is neither a view nor a
// record. A view may come after viewed was made, so it takes two sweeps.
func (r *records) uncountLocked(viewed map[string]map[userResource]bool) {
	used := map[schema.GroupResource]bool{}
	for of := range r.of {
		used[of.resource.GroupResource()] = true
	}
	for _, resources := range viewed {
		for of := range resources {
			used[of.resource.GroupResource()] = true
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
