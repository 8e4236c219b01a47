package derived

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cache/convert"
	wal "github.com/edgehub-io/edgehub/cache/log"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// Options are options of derived objects. All are required but APIServer.
type Options struct {
	Views *view.Views
	File  *wal.Log // has what was reported and written
	Node  string   // its name
	// APIServer are the addresses at which pods reach the hub, at most one of each family.
	// Without any, the slice of the apiservers stays as it is.
	APIServer []netip.AddrPort
	IsUp      func() bool   // whether the node can reach an apiserver
	Jitter    time.Duration // over which watches resume after an outage
	Log       *slog.Logger
}

// Objects derives objects. It is safe for concurrent use.
type Objects struct {
	Options
	statuses    *wal.Table
	nodePatches *wal.Table

	mu       sync.Mutex
	revision uint64 // of the last change that held watches may have to show
	waiting  map[*context.CancelFunc]bool

	reports   map[key]*Update
	dropped   []*Update // by the last drop
	droppedAt time.Time

	writers map[NodeWriter]*NodePatch

	slices sliceState
}

// sliceState is what slices are computed from, and what was computed. The zero value, with its maps, is that of a
// cloud that was never lost.
type sliceState struct {
	away     bool                     // the cloud was lost, and has not returned
	complete bool                     // there are no other pods
	pods     map[string][]*corev1.Pod // by namespace; the lists are replaced, never changed
	// changed has for each namespace a number that grows when its slices may have changed.
	changed map[string]uint64

	seen       uint64 // of the reports that pods have
	revision   uint64 // of the last change of a copy
	copies     map[copyKey]*sliceCopy
	owners     map[types.UID]types.UID // see nodePods; replaced, never changed
	returnedAt time.Time

	// loadedAt and loaded are when the views were read from disk, and their versions: clients that
	// watch may have slices of an outage that the last process showed them, and may not have seen
	// its end.
	loadedAt time.Time
	loaded   map[*view.View]string
}

// TableNodePatches is the name of the log's table of NodePatches. It is to be kept if a file that is opened late is begun anew:
// nobody else has the patches that wait there.
const TableNodePatches = "nodepatches"

// New returns the objects of a cloud that was never lost; Load reads what was reported and written before.
func New(opts Options) *Objects {
	return &Objects{
		Options: opts, statuses: opts.File.Table("statuses"), nodePatches: opts.File.Table(TableNodePatches),
		waiting: map[*context.CancelFunc]bool{}, reports: map[key]*Update{}, writers: map[NodeWriter]*NodePatch{},
		slices: sliceState{changed: map[string]uint64{}, copies: map[copyKey]*sliceCopy{}},
	}
}

// Load reads what was reported and written before a restart, after the views were read. It is called again when the
// file was opened late: what was written until then is newer. Errors are the log's.
func (o *Objects) Load() error {
	loaded := map[*view.View]string{}
	for _, v := range o.Views.All() {
		if ShowsSlices(v) {
			loaded[v] = v.Position() // "" proves nothing, and is lower than any version
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.slices.loadedAt, o.slices.loaded = time.Now(), loaded
	err := errors.Join(o.statuses.Load(o.loadReport), o.nodePatches.Load(o.loadWriter))
	o.changedLocked()
	return err
}

// errOtherSalt has a row deleted whose key has the salt of another file, after it was put under the right one.
var errOtherSalt = errors.New("its key has another salt")

var (
	nodesResource  = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}                             //nolint:gochecknoglobals // a constant
	podsResource   = schema.GroupVersionResource{Version: "v1", Resource: "pods"}                              //nolint:gochecknoglobals // a constant
	slicesResource = discoveryv1.SchemeGroupVersion.WithResource("endpointslices")                             //nolint:gochecknoglobals // a constant
	sliceType      = wire.TypeMeta{APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: "EndpointSlice"} //nolint:gochecknoglobals // a constant
)

// isListed reports whether lists and watches show reports of a resource. Those of leases they do
// not: only the kubelet's own renewal needs them.
func isListed(r schema.GroupVersionResource) bool { return r == podsResource || r == nodesResource }

// Shows reports whether objects of a view may be derived ones in lists and watches.
func Shows(v *view.View) bool {
	return v.Key.Metadata == "" && isListed(v.Key.GVR()) || ShowsSlices(v)
}

// ShowsSlices reports whether objects of a view are computed from the node's pods.
func ShowsSlices(v *view.View) bool { return v.Key.Metadata == "" && v.Key.GVR() == slicesResource }

// IsSlices reports whether objects of a resource are computed from the node's pods.
func IsSlices(group, version, resource string) bool {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: resource} == slicesResource
}

// Get returns what a user reads instead of its copy of an object, and the update that makes the
// difference: nil, and the copy itself, if there is none.
func (o *Objects) Get(q *query.Query, cached view.Object) (view.Object, *Update) {
	if cached.Repr.Metadata != "" {
		return cached, nil
	}
	own := q.User == query.NodeUser
	var u *Update
	switch {
	case q.Resource == slicesResource:
		u = o.slice(cached)
	case own || isListed(q.Resource):
		o.mu.Lock()
		u = o.reports[keyOf(q)]
		o.mu.Unlock()
	}
	if u == nil {
		return cached, nil
	}
	laid, err := u.lay(cached, own)
	if err != nil {
		o.Log.Error("a derived object cannot be made of what is cached", "resource", q.Resource.Resource, "name", u.Name, "err", err)
		return cached, nil
	}
	return laid, u
}

// ErrOnlyMetadata is returned to a client that wants whole objects.
var ErrOnlyMetadata = errors.New("only the metadata of this was read through this hub")

// cached returns the whole copy of an object that a user would read if nothing were derived. Errors are
// those of view.Views.Seek, ErrOnlyMetadata, and damage.
func (o *Objects) cached(q *query.Query) (view.Object, error) {
	copies, err := o.Views.Seek(q)
	if err != nil {
		return view.Object{}, err
	}
	err = ErrOnlyMetadata
	for i := range copies {
		if copies[i].Whole() {
			var object view.Object
			if object, err = copies[i].Object(); err == nil {
				return object, nil
			}
		}
	}
	return view.Object{}, err
}

// currentRevision increases when held watches may have to show something else.
func (o *Objects) currentRevision() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.revision
}

// UntilChange returns a context that ends, besides with ctx, as soon as the revision is another one.
func (o *Objects) UntilChange(ctx context.Context, revision uint64) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.revision != revision {
		cancel()
		return ctx, cancel
	}
	o.waiting[&cancel] = true
	return ctx, func() {
		cancel()
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.waiting, &cancel)
	}
}

// changedLocked wakes held watches.
func (o *Objects) changedLocked() {
	o.revision++
	for cancel := range o.waiting {
		(*cancel)()
	}
	clear(o.waiting)
}

// decode decodes an object as one of type T.
func decode[T runtime.Object](o view.Object) (T, error) {
	var typed T
	object, err := convert.FromBare(o.Repr.Encoding, o.Type, o.Bare)
	if err != nil {
		return typed, err
	}
	typed, ok := object.(T)
	if !ok {
		return typed, fmt.Errorf("decode %T: %w", object, wire.ErrMalformed)
	}
	return typed, nil
}

// encode encodes an object like another one.
func encode(object runtime.Object, like view.Object) (view.Object, error) {
	var err error
	like.Bare, err = convert.ToBare(like.Repr.Encoding, object)
	return like, err
}
