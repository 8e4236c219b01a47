package view

import (
	"strconv"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Highest is the highest resourceVersion that was seen of a resource. A nil Highest has none.
//
// Each resource has its own, so that an aggregated apiserver, which can make up versions, does
// not affect other resources.
type Highest struct {
	n    atomic.Uint64
	uses int // resources that it is of; guarded by Views.mu
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

// Version returns the version, or "" if there is none.
func (h *Highest) Version() string { return versionOf(h.number()) }

func (h *Highest) number() uint64 {
	if h == nil {
		return 0
	}
	return h.n.Load()
}

func versionOf(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}

// Highest returns the highest version of a resource that any user has seen. It is nil while nothing of the resource is
// known: a URL can name any resource.
func (s *Views) Highest(resource schema.GroupVersionResource) *Highest {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.highest[resource.GroupResource()]
}

func (s *Views) highestLocked(resource schema.GroupResource) *Highest {
	h := s.highest[resource]
	if h == nil {
		h = new(Highest)
		// A part of a URL would keep the whole URL in memory.
		s.highest[schema.GroupResource{Group: strings.Clone(resource.Group), Resource: strings.Clone(resource.Resource)}] = h
	}
	h.uses++
	return h
}

func (s *Views) uncountLocked(resource schema.GroupResource) {
	if h := s.highest[resource]; h != nil {
		if h.uses--; h.uses == 0 {
			delete(s.highest, resource)
		}
	}
}
