package repeat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/edgehub-io/edgehub/cache/quota"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// kept are the answers of one policy. Except in construction, it is used under the lock of its Answers.
type kept struct {
	answers *Answers
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

	// Of a review, which has a token that is not to be on disk; zero after a restart:
	question *question
	asked    time.Time // when an apiserver was last asked
}

// put stores an answer, unless the same one is stored, and evicts what is beyond the bounds. It is used
// now, if Used is not set.
func (k *kept) put(key string, e entry, body []byte) {
	e.Policy = k.name
	if e.Used == 0 {
		e.Used = k.answers.clock.now().UnixMicro()
	}
	value := e.encode(body)
	e.size = int64(len(value))
	if e.question != nil {
		e.size += int64(len(e.question.body))
	}
	known := k.entries[key] != nil
	k.entries[key] = &e
	if !known || !k.isStored(key, e.record, value) {
		k.answers.table.Put(key, value)
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
	value, ok := k.answers.table.Get(key)
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
	k.answers.table.Delete(known...)
}

// evict deletes answers that have expired and those beyond the bounds.
func (k *kept) evict() {
	now := k.answers.clock.now()
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
