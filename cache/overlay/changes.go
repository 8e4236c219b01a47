package overlay

import (
	"slices"
	"time"
)

// Find returns the update of an object, or nil.
func (o *Overlay) Find(key Key) *Update {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.objects[key]
}

// Updates returns the updates of a resource, unordered.
func (o *Overlay) Updates(group, version, resource string) []*Update {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []*Update
	for key, u := range o.objects {
		if key.Group == group && key.Version == version && key.Resource == resource {
			out = append(out, u)
		}
	}
	return out
}

// droppedFor is how long Recent returns dropped updates: a client may take that long from an
// offline list to its watch.
const droppedFor = 5 * time.Minute

// Recent returns the updates that a client may have seen: the current ones, and those of a recent
// Drop.
func (o *Overlay) Recent() []*Update {
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(o.droppedAt) > droppedFor {
		o.dropped = nil
	}
	out := slices.Clone(o.dropped)
	for _, u := range o.objects {
		if u.Key.isShown() {
			out = append(out, u)
		}
	}
	return out
}

// Revision increases with each update, Drop and Touch.
func (o *Overlay) Revision() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.revision
}

// Touch notifies whoever shows updates that computed ones may have changed. See Computed.
func (o *Overlay) Touch() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.revision++
	o.changedLocked()
}

// OnChange calls fn after each change, until stop is called. fn must not block or call back.
func (o *Overlay) OnChange(fn func()) (stop func()) {
	key := &fn
	o.mu.Lock()
	defer o.mu.Unlock()
	o.listeners[key] = true
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.listeners, key)
	}
}

func (o *Overlay) changedLocked() {
	for fn := range o.listeners {
		(*fn)()
	}
}
