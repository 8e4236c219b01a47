package repeat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/quota"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// Table is where answers are on disk.
type Table interface {
	// Key returns a salted hash of parts, which is the same after a restart.
	Key(parts ...string) string
	// Get returns a copy of a value. A value that cannot be read counts as missing.
	Get(key string) (value []byte, ok bool)
	// Put and Delete queue changes for the disk.
	Put(key string, value []byte)
	Delete(keys ...string)
	// Load calls fn with each value, and deletes those for which fn returns an error.
	Load(fn func(key string, value []byte) error) error
}

// Options of Answers. All are required.
type Options struct {
	// Users learns the users of issued tokens.
	Users *identity.Tokens
}

// Answers are the last answers of apiservers.
type Answers struct {
	opts     Options
	policies map[string]policy // by their names on disk
	tokens   *tokens           // one of them

	mu    sync.Mutex // guards what follows, and the entries of all policies
	table Table
	clock clock
}

// policy determines for one kind of question what is kept of the answer, for how long, and what is
// answered offline.
type policy interface {
	wants(r *Request) bool
	keep(r *Request, res *Response) error
	answer(r *Request) (*Response, error)
	common() *kept
}

// Request is what a user asks.
type Request struct {
	HTTP *http.Request
	Info *request.RequestInfo
	User string // user key
	Body []byte // of a POST
}

// Response is an answer.
type Response struct {
	Code   int
	Header http.Header
	Body   []byte // not compressed
}

// New returns empty Answers; Load loads the stored ones.
func New(o Options) *Answers {
	a := &Answers{opts: o}
	a.tokens = newTokens(a)
	a.policies = map[string]policy{}
	for _, p := range []policy{newPaths(a), a.tokens} {
		a.policies[p.common().name] = p
	}
	return a
}

// Load replaces the answers by those in a table.
func (a *Answers) Load(t Table) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.table = t
	for _, p := range a.policies {
		clear(p.common().entries)
	}
	var latest time.Time
	err := t.Load(func(key string, value []byte) error {
		r, _, err := parse(value)
		if err != nil {
			return err
		}
		p := a.policies[r.Policy]
		if p == nil {
			return errPolicy
		}
		p.common().entries[key] = &entry{record: r, size: int64(len(value))}
		if used := r.used(); used.After(latest) {
			latest = used
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("load the last answers of the apiservers: %w", err)
	}
	a.clock.notBefore(latest)
	for _, p := range a.policies {
		p.common().evict()
	}
	a.tokens.recall()
	return nil
}

var errPolicy = errors.New("no policy has such answers")

// Wants reports whether the answers to a request are repeated offline.
func (a *Answers) Wants(r *Request) bool { return a.policyOf(r) != nil }

func (a *Answers) policyOf(r *Request) policy {
	for _, p := range a.policies {
		if p.wants(r) {
			return p
		}
	}
	return nil
}

// Keep stores an apiserver's answer to a request that Answers wants. Of a success it needs the whole
// body. It keeps no reference to its arguments. After an error the answer cannot be repeated.
func (a *Answers) Keep(r *Request, res *Response) error { return a.policyOf(r).keep(r, res) }

// Answer answers a request that Answers wants, without an apiserver. The response is the caller's.
func (a *Answers) Answer(r *Request) (*Response, error) { return a.policyOf(r).answer(r) }

// kept are the answers of one policy. Except in construction, it is used under the lock of its Answers.
type kept struct {
	all     *Answers
	name    string
	bounds  quota.Bounds // of the answers of all users together
	entries map[string]*entry

	// nodeApart bounds the node's answers by themselves, so that no others displace them.
	nodeApart bool
	// writeEvery is the precision of the time of last use on disk: an answer that stays the same is not
	// written more often.
	writeEvery time.Duration
	// lasts is the age at which an unused answer is dropped.
	lasts time.Duration
}

func (k *kept) common() *kept { return k }

// entry is what is in memory of an answer: all but its body.
type entry struct {
	record

	size int64 // in bytes, for the bounds
}

// put stores an answer, unless the same one is stored, and evicts what is beyond the bounds. It is used
// now, if Used is not set.
func (k *kept) put(key string, e entry, body []byte) {
	e.Policy = k.name
	if e.Used == 0 {
		e.Used = k.all.clock.now().UnixMicro()
	}
	value := e.encode(body)
	e.size = int64(len(value))
	known := k.entries[key] != nil
	k.entries[key] = &e
	if !known || !k.isStored(key, e.record, value) {
		k.all.table.Put(key, value)
	}
	k.evict()
}

// isStored reports whether an answer is on disk as it is, with a time of last use that is good enough.
// It does not go by memory: the file may have been replaced.
func (k *kept) isStored(key string, r record, value []byte) bool {
	stored, body, ok := k.read(key)
	if !ok || r.used().Sub(stored.used()) >= k.writeEvery {
		return false
	}
	stored.Used = r.Used
	return bytes.Equal(stored.encode(body), value)
}

// get returns an answer. One that cannot be read stays in memory, for the disk may recover.
func (k *kept) get(key string) (*entry, []byte, bool) {
	e := k.entries[key]
	if e == nil {
		return nil, nil, false
	}
	_, body, ok := k.read(key)
	return e, body, ok
}

func (k *kept) read(key string) (record, []byte, bool) {
	value, ok := k.all.table.Get(key)
	if !ok {
		return record{}, nil, false
	}
	r, body, err := parse(value)
	return r, body, err == nil
}

func (k *kept) delete(keys ...string) {
	var known []string
	for _, key := range keys {
		if k.entries[key] != nil {
			known = append(known, key)
			delete(k.entries, key)
		}
	}
	k.all.table.Delete(known...)
}

// evict deletes answers that have expired and those beyond the bounds.
func (k *kept) evict() {
	now := k.all.clock.now()
	var keys []string
	var node, others []quota.Item[string]
	for key, e := range k.entries {
		item := quota.Item[string]{Key: key, User: e.User, Bytes: e.size, Last: e.Used}
		switch {
		case now.Sub(e.used()) >= k.lasts:
			keys = append(keys, key)
		case k.nodeApart && e.User == quota.Node:
			node = append(node, item)
		default:
			others = append(others, item)
		}
	}
	for _, items := range [][]quota.Item[string]{node, others} {
		for _, item := range quota.Excess(k.bounds, items) {
			keys = append(keys, item.Key)
		}
	}
	k.delete(keys...)
}

// record is an answer on disk, without its body. It is a line of JSON, which the body follows.
type record struct {
	Policy string `json:"policy"`
	User   string `json:"user"` // whom it counts against
	// Used is when it was last used, by the clock of Answers, in Unix microseconds.
	Used int64 `json:"used"`
	// Group is what answers have in common that are deleted together: a hash.
	Group string `json:"group,omitempty"`

	// Of a path: what is repeated of the response's header, and the ETag that a later 304 has confirmed.
	Header    map[string]string `json:"header,omitempty"`
	Confirmed string            `json:"confirmed,omitempty"`
}

func (r *record) used() time.Time { return time.UnixMicro(r.Used) }

func (r *record) encode(body []byte) []byte {
	head, err := json.Marshal(r)
	if err != nil {
		panic(err) // it has strings and numbers only
	}
	return append(append(head, '\n'), body...)
}

// parse is the inverse of encode. The body is a part of value.
func parse(value []byte) (r record, body []byte, err error) {
	head, body, ok := bytes.Cut(value, []byte("\n"))
	if !ok {
		return r, nil, wire.ErrTruncated
	}
	if err := json.Unmarshal(head, &r); err != nil {
		return r, nil, fmt.Errorf("read a stored answer: %w", err)
	}
	return r, body, nil
}
