package nodepatch

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/cache/table"
)

const (
	maxWriters = 16 // a node has one or two agents
	maxKeys    = 64 // of a writer
)

var (
	errNeverWritten = errors.New("this user has not written this to the node's Node with the cloud")
	errOtherNode    = errors.New("the Node is not the one that this user has written to with the cloud")
)

// Writer is who patches the Node.
type Writer struct {
	User        string // key
	Subresource string // "status" or ""
}

// Waiting is a patch that waits for the cloud.
type Waiting struct {
	Writer
	Manager string // of fields
	Patch   *Patch
}

// record is what is known of a writer, on disk as JSON.
type record struct {
	Waiting          // Patch is nil if none waits
	UID     string   // of the Node
	Keys    []string // that may be written
	used    uint64   // when an apiserver last let it; 0 after a restart
}

// Patches are the known writers and their patches.
type Patches struct {
	table *table.Table

	mu      sync.Mutex
	writers map[Writer]*record
	now     uint64 // counts successes
}

// Open returns the writers and patches in a table. Errors are the store's.
func Open(t table.Store, log *slog.Logger) (*Patches, error) {
	b, err := table.Open(t, "nodepatches", log)
	if err != nil {
		return nil, fmt.Errorf("open the kept patches of the Node: %w", err)
	}
	p := &Patches{table: b, writers: map[Writer]*record{}}
	var unreadable []string
	err = b.All(func(key string, value []byte) {
		var r record
		if json.Unmarshal(value, &r) != nil || len(p.writers) >= maxWriters {
			unreadable = append(unreadable, key)
			return
		}
		p.writers[r.Writer] = &r
	})
	if err != nil {
		return nil, fmt.Errorf("open the kept patches of the Node: %w", err)
	}
	b.Delete(unreadable...)
	return p, nil
}

func (p *Patches) key(w Writer) string { return p.table.Key(w.User, w.Subresource) }

func (p *Patches) putLocked(r *record) {
	value, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings
	}
	p.table.Put(p.key(r.Writer), value)
}

// Learn records that an apiserver has let a writer patch the Node as a field manager. node is its
// answer. written is the patch, or nil for one that Parse does not understand. What waits is older:
// it gets the values of written, since it may be under way and arrive last, and is sent again; without
// them it is dropped.
func (p *Patches) Learn(w Writer, manager string, written *Patch, node *corev1.Node) {
	keys := writtenBy(manager, node)
	keys = keys[:min(len(keys), maxKeys)]
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.writers[w]
	if old == nil && len(keys) == 0 || old == nil && !p.makeRoomLocked() {
		return
	}
	p.now++
	next := &record{Waiting: Waiting{Writer: w, Manager: manager}, UID: string(node.UID), Keys: keys, used: p.now}
	if old != nil && old.UID == next.UID {
		next.Patch = old.Patch.updated(written)
		if len(keys) == 0 { // another program of the account, which takes nothing from the first
			next.Keys, next.Manager = old.Keys, old.Manager
		}
	}
	p.writers[w] = next
	if old == nil || old.Patch != nil || old.Manager != next.Manager || old.UID != next.UID || !slices.Equal(old.Keys, next.Keys) {
		p.putLocked(next)
	}
}

// makeRoomLocked forgets the writer that an apiserver has let write longest ago, if there are too
// many. It returns false if patches of all of them wait.
func (p *Patches) makeRoomLocked() bool {
	if len(p.writers) < maxWriters {
		return true
	}
	var oldest *record
	for _, r := range p.writers {
		if r.Patch == nil && (oldest == nil || r.used < oldest.used) {
			oldest = r
		}
	}
	if oldest != nil {
		p.forgetLocked(oldest.Writer)
	}
	return oldest != nil
}

// Forget records that an apiserver has refused a writer, and drops what waits of it.
func (p *Patches) Forget(w Writer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.writers[w] != nil {
		p.forgetLocked(w)
	}
}

func (p *Patches) forgetLocked(w Writer) {
	delete(p.writers, w)
	p.table.Delete(p.key(w))
}

// Allow returns nil if a writer may patch the Node with this UID while the cloud is away. Otherwise
// its error is for the client.
func (p *Patches) Allow(w Writer, uid string, patch *Patch) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.allowedLocked(w, uid, patch)
	return err
}

func (p *Patches) allowedLocked(w Writer, uid string, patch *Patch) (*record, error) {
	r := p.writers[w]
	if r == nil {
		return nil, errNeverWritten
	}
	for _, key := range patch.keys() {
		if !slices.Contains(r.Keys, key) {
			return nil, fmt.Errorf("%w (%s)", errNeverWritten, key)
		}
	}
	if r.UID != uid {
		return nil, errOtherNode
	}
	if len(r.Patch.with(patch).Body()) > maxBytes {
		return nil, errTooLarge
	}
	return r, nil
}

// Add has a patch that was allowed wait for the cloud.
func (p *Patches) Add(w Writer, uid string, patch *Patch) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, err := p.allowedLocked(w, uid, patch)
	if err != nil {
		return err
	}
	next := *r // those that Waiting returned stay as they are
	next.Patch = r.Patch.with(patch)
	next.Patch.Metadata.UID = uid
	p.writers[w] = &next
	p.putLocked(&next)
	return nil
}

// Waiting returns the patches that wait.
func (p *Patches) Waiting() []Waiting {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []Waiting
	for _, r := range p.writers {
		if r.Patch != nil {
			all = append(all, r.Waiting)
		}
	}
	return all
}

// Done drops a patch of Waiting's, unless another one waits by now.
func (p *Patches) Done(sent Waiting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.writers[sent.Writer]; r != nil && r.Patch == sent.Patch {
		next := *r
		next.Patch = nil
		p.writers[sent.Writer] = &next
		p.putLocked(&next)
	}
}
