package derived

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/negotiation"
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
	// SettleAfter is how long after the return of the cloud, and Options.Jitter, watches keep showing
	// reports. Then they send the cached state of objects for which the cloud has sent no event: a
	// kubelet that gets it reports its status again.
	SettleAfter = time.Minute
	// dropAfter is how long after that reports are dropped: when all watches have reverted them.
	dropAfter = 5 * time.Second
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
	current, _, err := o.cached(q)
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
	var object runtime.Object
	next.object, object, err = patched(k, r, cached)
	next.selectable(object)
	return next, err
}

// patched returns the result of a request in both forms.
func patched(k key, r patch.Request, base view.Object) (view.Object, runtime.Object, error) {
	current, err := decode[runtime.Object](base)
	if err != nil {
		return view.Object{}, nil, fmt.Errorf("read the cached %s %s: %w", k.Resource, k.Name, err)
	}
	r.Resource = k.GroupResource()
	next, err := patch.Apply(r, current)
	if err != nil {
		return view.Object{}, nil, err
	}
	keepSpec(next, current)
	result, err := encode(next, base)
	return result, next, err
}

// reportsOf returns the reports of a resource, and, of those that were dropped last, the ones that a client
// may still have, if recent is set.
func (o *Objects) reportsOf(r schema.GroupVersionResource, recent bool) (all []*Update) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.Now().Sub(o.droppedAt) > recentFor {
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
// Until watches have reverted reports that the cloud does not have, a kubelet considers them written,
// and does not send them again: if the cloud is lost before, the reports are the only copy.
func (o *Objects) Settle(ctx context.Context) {
	if !pause.Sleep(ctx, o.Jitter+SettleAfter) {
		return
	}
	o.setSettled(true)
	if pause.Sleep(ctx, dropAfter) {
		o.drop()
	}
	o.setSettled(false)
}

func (o *Objects) setSettled(settled bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.settled = settled
}

// drop drops all reports.
func (o *Objects) drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.reports) == 0 {
		return
	}
	o.dropped, o.droppedAt = nil, o.Now()
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

// tableKey hashes the names: keys of a table are not encrypted.
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

// loadReport reads a report on disk.
func (o *Objects) loadReport(_ string, value []byte) error {
	var r record
	if err := json.Unmarshal(value, &r); err != nil {
		return err
	}
	u := newUpdate(r.Key, r.UID, r.ResourceVersion)
	u.object = view.Object{Type: r.Type, Repr: negotiation.Representation{Encoding: r.Encoding}, Bare: r.Bare}
	object, err := decode[runtime.Object](u.object)
	if err == nil {
		u.selectable(object)
		o.putLocked(u)
		o.revision++
	}
	return err
}
