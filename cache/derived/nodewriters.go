package derived

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cache/patch"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/view"
)

// maxWriters bounds the writers that are known. A node has one or two agents.
const maxWriters = 16

var errNeverWritten = errors.New("this user has not written this to the node's Node with the cloud")

// NodeWriter is who patches the Node.
type NodeWriter struct {
	User        string // key
	Subresource string // "status" or ""
}

// NodePatch is a patch of the Node that waits for the cloud. It is read-only. On disk it is JSON.
type NodePatch struct {
	NodeWriter
	Manager string     // of fields
	Patch   *nodePatch // nil: apiservers let the writer patch the Node, and nothing waits
}

// Request returns the patch as it is applied and sent.
func (p *nodePatch) Request() patch.Request {
	return patch.Request{Method: http.MethodPatch, ContentType: string(types.StrategicMergePatchType), Body: p.body()}
}

// loadWriter reads a writer on disk, unless memory has a newer one.
func (o *Objects) loadWriter(at string, value []byte) error {
	var w NodePatch
	if err := json.Unmarshal(value, &w); err != nil {
		return err
	}
	if o.writers[w.NodeWriter] == nil {
		o.writers[w.NodeWriter] = &w
	}
	if at != o.writerKey(w.NodeWriter) {
		o.putWriterLocked(o.writers[w.NodeWriter])
		return errOtherSalt
	}
	return nil
}

func (o *Objects) writerKey(by NodeWriter) string {
	return o.nodePatches.Key(by.User, by.Subresource)
}

func (o *Objects) putWriterLocked(w *NodePatch) {
	value, err := json.Marshal(w)
	if err != nil {
		panic(err) // strings
	}
	o.writers[w.NodeWriter] = w
	o.nodePatches.Put(o.writerKey(w.NodeWriter), value)
}

// LearnWriter records that an apiserver has let a writer patch the Node. What waits is older, but may be under way, and arrive
// last: it gets the values of this patch, and is sent again. If this patch is not one that is taken offline, what waits is
// dropped.
func (o *Objects) LearnWriter(by NodeWriter, r patch.Request) {
	written, _ := parseNodePatch(r.ContentType, r.Body) // nil for another patch
	o.mu.Lock()
	defer o.mu.Unlock()
	switch old := o.writers[by]; {
	case old == nil:
		if o.makeRoomLocked() {
			o.putWriterLocked(&NodePatch{NodeWriter: by})
		}
	case old.Patch != nil:
		o.putWriterLocked(&NodePatch{by, old.Manager, old.Patch.updated(written)})
	}
}

// makeRoomLocked forgets a writer if there are too many. It returns false if patches of all of them wait.
func (o *Objects) makeRoomLocked() bool {
	if len(o.writers) < maxWriters {
		return true
	}
	for by, w := range o.writers {
		if w.Patch == nil {
			o.forgetWriterLocked(by)
			return true
		}
	}
	return false
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
	o.nodePatches.Delete(o.writerKey(by))
}

// PatchNode applies a CNI agent's patch as a field manager to what the node reads of its Node, and keeps it for the cloud.
// It returns what the agent reads, its own copy, patched: it may have read another version than the node.
// Errors are those of Write, or say why the patch is not taken.
func (o *Objects) PatchNode(q *query.Query, by NodeWriter, manager string, r patch.Request) (view.Object, error) {
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
	n, err := decode[*corev1.Node](current)
	if err != nil {
		return view.Object{}, err
	}
	own, _ = o.Get(q, own)
	o.mu.Lock()
	defer o.mu.Unlock()
	sum, err := o.waitingLocked(by, manager, n, p)
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
	o.putWriterLocked(&NodePatch{by, manager, sum})
	return answer, nil
}

// waitingLocked returns what waits of a writer with another patch of this Node. If it may not write that while the
// cloud is away, the error is for the client.
func (o *Objects) waitingLocked(by NodeWriter, manager string, n *corev1.Node, p *nodePatch) (*nodePatch, error) {
	w, written := o.writers[by], writtenBy(manager, n)
	if w == nil {
		return nil, errNeverWritten
	}
	for _, key := range p.keys() {
		if !slices.Contains(written, key) {
			return nil, fmt.Errorf("%w (%s)", errNeverWritten, key)
		}
	}
	before := w.Patch
	if before != nil && before.Metadata.UID != string(n.UID) {
		before = nil // of an earlier Node of this name
	}
	sum := before.with(p)
	sum.Metadata.UID = string(n.UID)
	if len(sum.body()) > maxPatchBytes {
		return nil, errTooLarge
	}
	return sum, nil
}

// Waiting returns the patches of the Node that wait.
func (o *Objects) Waiting() (all []NodePatch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, w := range o.writers {
		if w.Patch != nil {
			all = append(all, *w)
		}
	}
	return all
}

// Sent drops a patch of Waiting's, unless another one waits by now.
func (o *Objects) Sent(p NodePatch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if w := o.writers[p.NodeWriter]; w != nil && w.Patch == p.Patch {
		o.putWriterLocked(&NodePatch{NodeWriter: p.NodeWriter})
	}
}
