package derived

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/patch"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

const (
	maxWriters = 16 // a node has one or two agents
	maxKeys    = 64 // of a writer
)

var (
	errNeverWritten = errors.New("this user has not written this to the node's Node with the cloud")
	errOtherNode    = errors.New("the Node is not the one that this user has written to with the cloud")
)

// NodeWriter is who patches the Node.
type NodeWriter struct {
	User        string // key
	Subresource string // "status" or ""
}

// NodePatch is a patch of the Node that waits for the cloud.
type NodePatch struct {
	NodeWriter
	Manager string // of fields
	Patch   *nodePatch
}

// Request returns the patch as it is applied and sent.
func (p *nodePatch) Request() patch.Request {
	return patch.Request{Method: http.MethodPatch, ContentType: string(types.StrategicMergePatchType), Body: p.body()}
}

// writer is what is known of a NodeWriter, on disk as JSON.
type writer struct {
	NodePatch          // Patch is nil if none waits
	UID       string   // of the Node
	Keys      []string // that may be written
	used      uint64   // when an apiserver last let it; 0 after a restart
}

// loadWriter reads a writer on disk.
func (o *Objects) loadWriter(_ string, value []byte) error {
	var w writer
	err := json.Unmarshal(value, &w)
	if err == nil {
		o.writers[w.NodeWriter] = &w
	}
	return err
}

func (o *Objects) putWriterLocked(w *writer) {
	value, err := json.Marshal(w)
	if err != nil {
		panic(err) // strings
	}
	o.writers[w.NodeWriter] = w
	o.nodePatches.Put(o.nodePatches.Key(w.User, w.Subresource), value)
}

// LearnWriter records that an apiserver has let a writer patch the Node as a field manager. node is its
// answer. What waits is older: it gets the values of this patch, since it may be under way and arrive last,
// and is sent again; if this patch is not one that is taken offline, it is dropped.
func (o *Objects) LearnWriter(by NodeWriter, manager string, r patch.Request, contentType string, node []byte) {
	object, err := convert.DecodeBody(contentType, node, wire.TypeMeta{APIVersion: "v1", Kind: "Node"})
	n, ok := object.(*corev1.Node)
	if err != nil || !ok {
		return // only its metadata was asked for, or a Table
	}
	written, _ := parseNodePatch(r.ContentType, r.Body) // nil for another patch
	keys := writtenBy(manager, n)
	keys = keys[:min(len(keys), maxKeys)]
	o.mu.Lock()
	defer o.mu.Unlock()
	old := o.writers[by]
	if old == nil && len(keys) == 0 || old == nil && !o.makeRoomLocked() {
		return
	}
	o.successes++
	next := &writer{NodePatch: NodePatch{NodeWriter: by, Manager: manager}, UID: string(n.UID), Keys: keys, used: o.successes}
	if old != nil && old.UID == next.UID {
		next.Patch = old.Patch.updated(written)
		if len(keys) == 0 { // another program of the account, which takes nothing from the first
			next.Keys, next.Manager = old.Keys, old.Manager
		}
	}
	o.writers[by] = next
	if old == nil || old.Patch != nil || old.Manager != next.Manager || old.UID != next.UID || !slices.Equal(old.Keys, next.Keys) {
		o.putWriterLocked(next)
	}
}

// makeRoomLocked forgets the writer that an apiserver has let write longest ago, if there are too
// many. It returns false if patches of all of them wait.
func (o *Objects) makeRoomLocked() bool {
	if len(o.writers) < maxWriters {
		return true
	}
	var oldest *writer
	for _, r := range o.writers {
		if r.Patch == nil && (oldest == nil || r.used < oldest.used) {
			oldest = r
		}
	}
	if oldest != nil {
		o.forgetWriterLocked(oldest.NodeWriter)
	}
	return oldest != nil
}

// ForgetWriter records that an apiserver has refused a writer, and drops what waits of it.
func (o *Objects) ForgetWriter(by NodeWriter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.writers[by] != nil {
		o.forgetWriterLocked(by)
	}
}

func (o *Objects) forgetWriterLocked(by NodeWriter) {
	delete(o.writers, by)
	o.nodePatches.Delete(o.nodePatches.Key(by.User, by.Subresource))
}

// PatchNode applies a CNI agent's patch to what the node reads of its Node, and keeps it for the cloud.
// It returns what the agent reads, its own copy, patched: it may have read another version than the node.
// Errors are those of Write, or say why the patch is not taken.
func (o *Objects) PatchNode(q *query.Query, by NodeWriter, r patch.Request) (view.Object, error) {
	p, err := parseNodePatch(r.ContentType, r.Body)
	if err != nil {
		return view.Object{}, err
	}
	own, err := o.cached(q)
	if err != nil {
		return view.Object{}, err
	}
	ofNode := *q
	ofNode.User = query.NodeUser
	current, err := o.cached(&ofNode)
	if err != nil {
		return view.Object{}, err
	}
	m, err := wire.Inspect(current.Repr.Encoding, current.Bare)
	if err != nil {
		return view.Object{}, err
	}
	own, _ = o.Get(q, own)
	o.mu.Lock()
	defer o.mu.Unlock()
	w, err := o.allowedLocked(by, string(m.UID), p)
	if err != nil {
		return view.Object{}, err
	}
	k := keyOf(q)
	answer, err := patched(k, p.Request(), own)
	if err != nil {
		return view.Object{}, err
	}
	if _, err := o.writeLocked(k, p.Request(), current); err != nil {
		return view.Object{}, err
	}
	o.addPatchLocked(w, p)
	return answer, nil
}

// allowedLocked returns the state of a writer that may patch the Node with this UID while the cloud is
// away. Otherwise its error is for the client.
func (o *Objects) allowedLocked(by NodeWriter, uid string, p *nodePatch) (*writer, error) {
	w := o.writers[by]
	if w == nil {
		return nil, errNeverWritten
	}
	for _, key := range p.keys() {
		if !slices.Contains(w.Keys, key) {
			return nil, fmt.Errorf("%w (%s)", errNeverWritten, key)
		}
	}
	if w.UID != uid {
		return nil, errOtherNode
	}
	if len(w.Patch.with(p).body()) > maxPatchBytes {
		return nil, errTooLarge
	}
	return w, nil
}

// addPatchLocked has a patch that is allowed wait for the cloud.
func (o *Objects) addPatchLocked(w *writer, p *nodePatch) {
	next := *w // those that Waiting returned stay as they are
	next.Patch = w.Patch.with(p)
	next.Patch.Metadata.UID = w.UID
	o.putWriterLocked(&next)
}

// Waiting returns the patches of the Node that wait.
func (o *Objects) Waiting() (all []NodePatch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, w := range o.writers {
		if w.Patch != nil {
			all = append(all, w.NodePatch)
		}
	}
	return all
}

// Sent drops a patch of Waiting's, unless another one waits by now.
func (o *Objects) Sent(p NodePatch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if w := o.writers[p.NodeWriter]; w != nil && w.Patch == p.Patch {
		next := *w
		next.Patch = nil
		o.putWriterLocked(&next)
	}
}
