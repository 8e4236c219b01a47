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

// Updates returns the updates of a resource, in no order.
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

// droppedFor is how long Recent remembers what was dropped: a client that has listed while the cloud was
// away may be some time about its watch.
const droppedFor = 5 * time.Minute

// Recent returns the updates that a client may have been shown: those that are there,
// and those of the last Drop, if that was not long ago.
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

// Revision is that of the last change, Drop among them.
func (o *Overlay) Revision() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.revision
}

// OnChange has fn called, which must not block or call back, after each change of
// what is shown, until stop is called.
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
