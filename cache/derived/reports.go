package derived

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/patch"
	"github.com/edgehub-io/edgehub/cache/pause"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

const (
	// maxReports bounds the objects with reports; a node has a few hundred pods at most. Beyond it,
	// the least recently updated one is dropped.
	maxReports = 1000
	// recentFor is how long after an outage a client may have objects that it has read in it: it may
	// take that long from a list to its watch.
	recentFor = 5 * time.Minute
)

// key names an object.
type key struct {
	schema.GroupVersionResource

	Namespace, Name string
}

func keyOf(q *query.Query) key { return key{q.Resource, q.Namespace, q.Name} }

// Write applies a PUT or PATCH of a subresource, which may be "", on top of earlier ones to what is
// cached of an object, and keeps the result. The caller must give it to the client.
//
// Errors are those of view.Views.Seek, ErrOnlyMetadata, and damage; patch.ErrUnsupported for all but the
// node's status, a pod's status and a lease; convert.ErrUnknownType; or an apierrors.APIStatus for the client.
// They change nothing.
func (o *Objects) Write(q *query.Query, subresource string, r patch.Request) (view.Object, error) {
	current, err := o.cached(q)
	if err != nil {
		return view.Object{}, err
	}
	return o.write(q, subresource, r, current)
}

func (o *Objects) write(q *query.Query, subresource string, r patch.Request, current view.Object) (view.Object, error) {
	k := keyOf(q)
	if err := checkScope(k, subresource); err != nil {
		return view.Object{}, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.writeLocked(k, r, current)
}

func (o *Objects) writeLocked(k key, r patch.Request, current view.Object) (view.Object, error) {
	u, err := o.reports[k].with(k, r, current)
	if err != nil {
		return view.Object{}, err
	}
	o.putLocked(u)
	o.keepLocked(u)
	o.changedLocked()
	return u.object, nil
}

// with returns the update after another request. u may be nil, or void.
func (u *Update) with(k key, r patch.Request, cached view.Object) (*Update, error) {
	m, err := wire.Inspect(cached.Repr.Encoding, cached.Bare)
	if err != nil {
		return nil, fmt.Errorf("read the cached %s %s: %w", k.Resource, k.Name, err)
	}
	next := newUpdate(k, string(m.UID), string(m.ResourceVersion))
	if u != nil && u.over(string(m.UID), string(m.ResourceVersion), true) {
		cached, next.version = u.object, u.version
	}
	next.object, err = patched(k, r, cached)
	return next, err
}

// patched returns the result of a request.
func patched(k key, r patch.Request, base view.Object) (view.Object, error) {
	current, err := decode[runtime.Object](base)
	if err != nil {
		return view.Object{}, fmt.Errorf("read the cached %s %s: %w", k.Resource, k.Name, err)
	}
	r.Resource = k.GroupResource()
	next, err := patch.Apply(r, current)
	if err != nil {
		return view.Object{}, err
	}
	keepSpec(next, current)
	return encode(next, base)
}

// reportsOf returns the reports of a resource, and, of those that were dropped last, the ones that a client
// may still have, if recent is set.
func (o *Objects) reportsOf(r schema.GroupVersionResource, recent bool) (all []*Update) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(o.droppedAt) > recentFor {
		o.dropped = nil
	}
	for k, u := range o.reports {
		if k.GroupVersionResource == r {
			all = append(all, u)
		}
	}
	for _, u := range o.dropped {
		if recent && u.key.GroupVersionResource == r {
			all = append(all, u)
		}
	}
	return all
}

// Settle ends an outage, and returns then, or at the next loss of the cloud, with ctx. It must be called
// when an apiserver has answered the node.
//
// Watches revert reports as soon as they can, so that kubelet sees what the cloud does not have. If the cloud is lost
// before kubelet has written that again, the reports are the only copy. The time for that begins anew with each loss, and with a
// hub that starts. It goes on during an interruption that is too short to count as a loss.
func (o *Objects) Settle(ctx context.Context) {
	if pause.Sleep(ctx, o.Jitter+SettleAfter) {
		o.drop()
	}
}

// drop drops all reports.
func (o *Objects) drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.reports) == 0 {
		return
	}
	o.dropped, o.droppedAt = nil, time.Now()
	for _, u := range o.reports {
		if isListed(u.key.GroupVersionResource) {
			o.dropped = append(o.dropped, u)
		}
		o.unkeepLocked(u)
	}
	clear(o.reports)
	o.changedLocked()
}

func (o *Objects) putLocked(u *Update) {
	if o.reports[u.key] == nil && len(o.reports) >= maxReports {
		oldest := u
		for _, one := range o.reports {
			if oldest == u || one.Revision < oldest.Revision {
				oldest = one
			}
		}
		delete(o.reports, oldest.key)
		o.unkeepLocked(oldest)
	}
	u.Revision = o.revision + 1 // that of changedLocked
	o.reports[u.key] = u
}

// record is a report on disk.
type record struct {
	Key             key
	UID             string
	ResourceVersion string
	Type            wire.TypeMeta
	Encoding        wire.Encoding
	Bare            []byte
}

// tableKey hashes the names, which may be long.
func (o *Objects) tableKey(k *key) string {
	return o.statuses.Key(k.Group, k.Version, k.Resource, k.Namespace, k.Name)
}

// keepLocked writes a report to disk, except that of a lease: a kubelet renews it every ten seconds.
func (o *Objects) keepLocked(u *Update) {
	if !isListed(u.key.GroupVersionResource) {
		return
	}
	value, err := json.Marshal(record{u.key, u.uid, u.version, u.object.Type, u.object.Repr.Encoding, u.object.Bare})
	if err != nil {
		panic(err) // strings and bytes
	}
	o.statuses.Put(o.tableKey(&u.key), value)
}

func (o *Objects) unkeepLocked(u *Update) {
	if isListed(u.key.GroupVersionResource) {
		o.statuses.Delete(o.tableKey(&u.key))
	}
}

// loadReport reads a report on disk, unless memory has a newer one.
func (o *Objects) loadReport(at string, value []byte) error {
	var r record
	if err := json.Unmarshal(value, &r); err != nil {
		return err
	}
	if o.reports[r.Key] == nil {
		u := newUpdate(r.Key, r.UID, r.ResourceVersion)
		u.object = view.Object{Type: r.Type, Repr: wire.Representation{Encoding: r.Encoding}, Bare: r.Bare}
		o.putLocked(u)
		o.revision++
	}
	if at != o.tableKey(&r.Key) {
		o.keepLocked(o.reports[r.Key])
		return errOtherSalt
	}
	return nil
}
