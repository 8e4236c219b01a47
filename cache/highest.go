package cache

import (
	"math/big"
	"strconv"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// highest is the highest resourceVersion that was seen in a version space.
type highest struct{ n atomic.Uint64 }

// raise is called with each version that is seen. One beyond 64 bits, which no apiserver
// has, counts as the highest there is.
func (h *highest) raise(version string) {
	if h == nil {
		return
	}
	n, _ := strconv.ParseUint(version, 10, 64) // 0, or the highest there is
	for {
		old := h.n.Load()
		if n <= old || h.n.CompareAndSwap(old, n) {
			return
		}
	}
}

func (h *highest) version() string {
	if h == nil {
		return ""
	}
	return versionOf(h.n.Load())
}

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

// highest returns what counts the versions of a resource.
func (r *records) highest(resource schema.GroupVersionResource) *highest {
	if r == nil {
		return nil
	}
	space := versionSpace(resource.GroupResource())
	r.mu.RLock()
	h := r.spaces[space]
	r.mu.RUnlock()
	if h != nil {
		return h
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.spaces[space] == nil {
		r.spaces[space] = new(highest)
	}
	return r.spaces[space]
}
