package overlay

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/patch"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// Key names an object. The caller must pass only requests that change what the node reports of itself.
type Key struct{ Group, Version, Resource, Namespace, Name string }

// Object is an object's bytes in the bare form (see wire.AppendBare).
type Object struct {
	Type     wire.TypeMeta
	Encoding wire.Encoding
	Bare     []byte // read-only
}

// Request is a PUT or PATCH.
type Request struct {
	Method      string
	Subresource string // "status" or ""
	ContentType string
	Body        []byte
}

// Options of an overlay. The zero value is usable.
type Options struct {
	// MaxObjects bounds the objects with updates: 1,000 by default; a node has a few hundred
	// pods at most. Beyond it, the least recently updated is dropped.
	MaxObjects int
	// Table keeps updates of pods and nodes over a restart. By default they are in memory only.
	Table Table
}

// Overlay holds updated objects.
type Overlay struct {
	max   int
	table Table // may be nil

	mu        sync.Mutex
	objects   map[Key]*Update
	revision  uint64 // of the last change
	listeners map[*func()]bool
	dropped   []*Update // by the last Drop
	droppedAt time.Time
}

// New returns an empty overlay.
func New(o Options) *Overlay {
	if o.MaxObjects <= 0 {
		o.MaxObjects = 1000
	}
	return &Overlay{max: o.MaxObjects, table: o.Table, objects: make(map[Key]*Update), listeners: make(map[*func()]bool)}
}

// Apply applies a request to an object, on top of earlier updates, and keeps the result. cached
// is the object in the cache. The result has the encoding that the cached object had at the first
// update.
//
// Errors are patch.ErrUnsupported for all but the node's status, a pod's status and a lease;
// convert.ErrUnknownType; or an apierrors.APIStatus for the client. They change nothing.
func (o *Overlay) Apply(key Key, r Request, cached Object) (Object, error) {
	if err := checkScope(key, r.Subresource); err != nil {
		return Object{}, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()

	base, uid, version, err := o.baseLocked(key, cached)
	if err != nil {
		return Object{}, err
	}
	result, next, err := patched(key, r, base)
	if err != nil {
		return Object{}, err
	}
	u := &Update{Object: result, Key: key, UID: uid, ResourceVersion: version}
	u.selectable(next)
	o.putLocked(u)
	o.keepLocked(u)
	o.changedLocked()
	return result, nil
}

// Patched applies a request to an object, and keeps nothing. Errors are those of Apply.
func Patched(key Key, r Request, o Object) (Object, error) {
	if err := checkScope(key, r.Subresource); err != nil {
		return Object{}, err
	}
	result, _, err := patched(key, r, o)
	return result, err
}

// patched returns the result in both forms.
func patched(key Key, r Request, base Object) (Object, runtime.Object, error) {
	current, err := convert.FromBare(base.Encoding, base.Type, base.Bare)
	if err != nil {
		return Object{}, nil, fmt.Errorf("read the cached %s %s: %w", key.Resource, key.Name, err)
	}
	next, err := patch.Apply(patch.Request{
		Method:      r.Method,
		ContentType: r.ContentType,
		Body:        r.Body,
		Resource:    schema.GroupResource{Group: key.Group, Resource: key.Resource},
	}, current)
	if err != nil {
		return Object{}, nil, err
	}
	keepSpec(next, current)
	bare, err := convert.ToBare(base.Encoding, next)
	return Object{Type: base.Type, Encoding: base.Encoding, Bare: bare}, next, err
}

// Get returns the updated object that lies over cached, if there is one. Its encoding may differ.
func (o *Overlay) Get(key Key, cached Object) (Object, bool) {
	m, err := wire.Inspect(cached.Encoding, cached.Bare)
	if err != nil {
		return Object{}, false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	u := o.objects[key]
	if u == nil || !u.Over(&m, true) {
		return Object{}, false
	}
	return u.Object, true
}

// Drop drops all updates. Those of pods and nodes are Recent for a while.
func (o *Overlay) Drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.objects) == 0 {
		return
	}
	o.dropped, o.droppedAt = nil, time.Now()
	for _, u := range o.objects {
		if u.Key.isShown() {
			o.dropped = append(o.dropped, u)
		}
		o.unkeepLocked(u)
	}
	clear(o.objects)
	o.revision++
	o.changedLocked()
}

// Len is the number of objects with updates.
func (o *Overlay) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.objects)
}

// baseLocked returns the object that an update is applied to, and the UID and version of the
// cached object beneath it.
func (o *Overlay) baseLocked(key Key, cached Object) (base Object, uid, version string, err error) {
	m, err := wire.Inspect(cached.Encoding, cached.Bare)
	if err != nil {
		return Object{}, "", "", fmt.Errorf("read the cached %s %s: %w", key.Resource, key.Name, err)
	}
	if u := o.objects[key]; u != nil && u.Over(&m, true) {
		return u.Object, u.UID, u.ResourceVersion, nil
	}
	return cached, string(m.UID), string(m.ResourceVersion), nil
}

func (o *Overlay) putLocked(u *Update) {
	if _, ok := o.objects[u.Key]; !ok && len(o.objects) >= o.max {
		o.forgetOldestLocked()
	}
	o.revision++
	u.Revision = o.revision
	o.objects[u.Key] = u
}

func (o *Overlay) forgetOldestLocked() {
	var oldest *Update
	for _, u := range o.objects {
		if oldest == nil || u.Revision < oldest.Revision {
			oldest = u
		}
	}
	delete(o.objects, oldest.Key)
	o.unkeepLocked(oldest)
}
