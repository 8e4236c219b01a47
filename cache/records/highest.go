package records

import (
	"strconv"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/query"
)

// Highest is the highest resourceVersion that was seen of a resource. A nil Highest has none.
type Highest struct {
	n    atomic.Uint64
	idle int // sweeps in a row that found nothing of the resource; guarded by Records.mu
}

// Raise is called with each version that is seen. It ignores versions of 2^63 or more, which are
// made up: etcd counts in 63 bits.
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

// lower is called with the version of an etcd that was restored from a backup.
func (h *Highest) lower(version string) {
	if n, err := strconv.ParseUint(version, 10, 63); err == nil && h.n.Load() > n {
		h.n.Store(n)
	}
}

// value returns the version, or 0 if there is none.
func (h *Highest) value() uint64 {
	if h == nil {
		return 0
	}
	return h.n.Load()
}

// Version returns the version, or "" if there is none.
func (h *Highest) Version() string { return versionOf(h.value()) }

func versionOf(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}

// MaxCounted bounds the resources whose versions are counted. It is twice the bound of views,
// because some resources have only records.
const MaxCounted = 8192

// Highest returns the highest version of a resource. It is nil while nothing of the resource is
// cached: a URL can name any resource.
//
// Each resource has its own, so that an aggregated apiserver, which can make up versions, does
// not affect other resources.
func (r *Records) Highest(resource schema.GroupVersionResource) *Highest {
	if r == nil {
		return nil
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.counted[resource.GroupResource()]
}

// Count returns the highest version of a resource that will be cached. It is nil if too many
// resources are counted.
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
		// A part of a URL would keep the whole URL in memory.
		r.counted[schema.GroupResource{Group: strings.Clone(resource.Group), Resource: strings.Clone(resource.Resource)}] = h
	}
	h.idle = 0
	return h
}

// uncountLocked drops the versions of resources without views and records, in the second sweep
// that finds none: a view may have been created after viewed was collected.
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
