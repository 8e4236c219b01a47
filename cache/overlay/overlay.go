package overlay

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/update"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// Key names an object. Whose request it is does not matter: only the node's own updates
// are for an overlay, which is for the caller to see to.
type Key struct{ Group, Version, Resource, Namespace, Name string }

// Object is an object's bytes in the bare form (see wire.AppendBare).
type Object struct {
	Type     wire.TypeMeta
	Encoding wire.Encoding
	Bare     []byte // nobody changes it
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
	// MaxObjects bounds the objects with updates: 1,000 by default, where a node has at
	// most some hundred pods. Beyond it, the one that was updated longest ago is
	// forgotten.
	MaxObjects int
}

// Overlay holds updated objects.
type Overlay struct {
	max int

	mu      sync.Mutex
	objects map[Key]*entry
	clock   uint64 // counts updates
}

type entry struct {
	Object
	uid, resourceVersion string // of the cached object beneath
	updated              uint64 // when, by clock
}

// New returns an empty overlay.
func New(o Options) *Overlay {
	if o.MaxObjects <= 0 {
		o.MaxObjects = 1000
	}
	return &Overlay{max: o.MaxObjects, objects: make(map[Key]*entry)}
}

// Apply returns what a request makes of an object, and keeps it. cached is the object as
// the cache has it; earlier updates lie over it. The result is in the encoding in which
// the object was cached when it was first updated.
//
// Errors are update.ErrUnsupported for all but the node's status, a pod's status and a
// lease; convert.ErrUnknownType; or an apierrors.APIStatus to answer with, after which
// all is as before.
func (o *Overlay) Apply(key Key, r Request, cached Object) (Object, error) {
	only, err := scopeOf(key, r.Subresource)
	if err != nil {
		return Object{}, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()

	base, uid, version, err := o.baseLocked(key, cached)
	if err != nil {
		return Object{}, err
	}
	current, err := convert.FromBare(base.Encoding, base.Type, base.Bare)
	if err != nil {
		return Object{}, fmt.Errorf("read the cached %s %s: %w", key.Resource, key.Name, err)
	}
	next, err := update.Apply(update.Request{
		Method:      r.Method,
		ContentType: r.ContentType,
		Body:        r.Body,
		Resource:    schema.GroupResource{Group: key.Group, Resource: key.Resource},
	}, current)
	if err != nil {
		return Object{}, err
	}
	only(next, current)
	bare, err := convert.ToBare(base.Encoding, next)
	if err != nil {
		return Object{}, err
	}
	result := Object{Type: base.Type, Encoding: base.Encoding, Bare: bare}
	o.putLocked(key, &entry{Object: result, uid: uid, resourceVersion: version})
	return result, nil
}

// Get returns the updated object that lies over cached, if there is one. Its encoding
// need not be cached's.
func (o *Overlay) Get(key Key, cached Object) (Object, bool) {
	m, err := wire.Inspect(cached.Encoding, cached.Bare)
	if err != nil {
		return Object{}, false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.objects[key]
	if e == nil || !e.over(&m) {
		return Object{}, false
	}
	return e.Object, true
}

// Drop forgets all updates.
func (o *Overlay) Drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.objects)
}

// Len is the number of objects with updates.
func (o *Overlay) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.objects)
}

// baseLocked returns the object that an update is applied to, with what identifies the
// cached object beneath it.
func (o *Overlay) baseLocked(key Key, cached Object) (base Object, uid, version string, err error) {
	m, err := wire.Inspect(cached.Encoding, cached.Bare)
	if err != nil {
		return Object{}, "", "", fmt.Errorf("read the cached %s %s: %w", key.Resource, key.Name, err)
	}
	if e := o.objects[key]; e != nil && e.over(&m) {
		return e.Object, e.uid, e.resourceVersion, nil
	}
	return cached, string(m.UID), string(m.ResourceVersion), nil
}

// over reports whether e is an update of this object, or of a later version of it: the
// same object may be cached in two representations, one of them older.
func (e *entry) over(m *wire.Meta) bool {
	return e.uid == string(m.UID) && !update.Older(e.resourceVersion, string(m.ResourceVersion))
}

func (o *Overlay) putLocked(key Key, e *entry) {
	if _, ok := o.objects[key]; !ok && len(o.objects) >= o.max {
		o.forgetOldestLocked()
	}
	o.clock++
	e.updated = o.clock
	o.objects[key] = e
}

func (o *Overlay) forgetOldestLocked() {
	var oldest Key
	least := ^uint64(0)
	for key, e := range o.objects {
		if e.updated < least {
			oldest, least = key, e.updated
		}
	}
	delete(o.objects, oldest)
}
