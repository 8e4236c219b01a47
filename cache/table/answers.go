package table

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/edgehub-io/edgehub/cache/quota"
)

// Answers is a table of what an apiserver has answered last, to be repeated offline. What
// identifies an answer is in memory; its body is read when it is needed. Package quota determines
// who loses answers beyond the bounds.
//
// It is not safe for concurrent use: its owner has a lock, under which it also calls all methods.
type Answers[T any] struct {
	// Table has the answers by [Table.Key]. Keys that are no hashes are the owner's.
	Table *Table
	// Entries are the answers without their bodies, by key. Only Answers adds and removes them.
	Entries map[string]*Answer[T]

	opts AnswersOptions
}

// AnswersOptions are options of Answers.
type AnswersOptions struct {
	Name   string       // of the table
	Bounds quota.Bounds // of the answers of all users together
	// NodeApart bounds the node's answers by themselves, so that no others displace them.
	NodeApart bool
	// WriteEvery is the precision of the time of last use on disk: an answer that stays the
	// same is not written more often.
	WriteEvery time.Duration
	// Expired reports whether answers that were last used at a time are dropped. It may be nil.
	Expired func(used time.Time) bool
	Logger  *slog.Logger // logs damage; by default nothing is logged
}

// Answer is an answer of an apiserver.
type Answer[T any] struct {
	User string    // user key of whom it counts against
	Used time.Time // to the millisecond after a restart
	// About is what its owner has in memory of it. On disk it is JSON, without unexported
	// fields.
	About T
	Body  []byte // nil in Entries
	Extra int    // bytes in unexported fields of About, which count for the bounds

	size int64 // on disk, and Extra
}

// OpenAnswers returns the answers in a table, also those beyond the bounds: the owner calls Evict.
func OpenAnswers[T any](s Store, o AnswersOptions) (*Answers[T], error) {
	t, err := Open(s, o.Name, o.Logger)
	if err != nil {
		return nil, err
	}
	a := &Answers[T]{Table: t, Entries: make(map[string]*Answer[T]), opts: o}
	return a, t.Load(func(key string, value []byte) error {
		if len(key) < hex.EncodedLen(sha256.Size) {
			return nil
		}
		r, err := parse[T](value)
		if err == nil {
			a.Entries[key] = r.entry(len(value))
		}
		return err
	})
}

// Put stores an answer, unless the same one is stored, and evicts what is beyond the bounds.
func (a *Answers[T]) Put(key string, r Answer[T]) {
	value := r.bytes()
	known := a.Entries[key] != nil
	a.Entries[key] = r.entry(len(value))
	if !known || !a.isStored(key, value, r.Used) {
		a.Table.Put(key, value)
	}
	a.Evict()
}

// isStored reports whether an answer is on disk as it is, with a time of last use that is good
// enough. It does not go by memory: the store's file may have been replaced.
func (a *Answers[T]) isStored(key string, value []byte, used time.Time) bool {
	stored, ok := a.Table.Get(key)
	return ok && len(stored) >= timeEnd && bytes.Equal(stored[timeEnd:], value[timeEnd:]) &&
		used.Sub(timeOf(stored)) < a.opts.WriteEvery
}

// Get reads an answer from the disk. One that cannot be read stays in memory, for the disk may
// recover.
func (a *Answers[T]) Get(key string) (Answer[T], bool) {
	if a.Entries[key] == nil {
		return Answer[T]{}, false
	}
	value, ok := a.Table.Get(key)
	if !ok {
		return Answer[T]{}, false
	}
	r, err := parse[T](value)
	return r, err == nil
}

// Delete forgets answers.
func (a *Answers[T]) Delete(keys ...string) {
	var known []string
	for _, key := range keys {
		if a.Entries[key] != nil {
			known = append(known, key)
			delete(a.Entries, key)
		}
	}
	a.Table.Delete(known...)
}

// Evict forgets answers that have expired and those beyond the bounds.
func (a *Answers[T]) Evict() {
	var keys []string
	var node, others []quota.Item[string]
	for key, e := range a.Entries {
		item := quota.Item[string]{Key: key, User: e.User, Bytes: e.size, Last: e.Used.UnixNano()}
		switch {
		case a.opts.Expired != nil && a.opts.Expired(e.Used):
			keys = append(keys, key)
		case a.opts.NodeApart && e.User == quota.Node:
			node = append(node, item)
		default:
			others = append(others, item)
		}
	}
	for _, items := range [][]quota.Item[string]{node, others} {
		for _, item := range quota.Excess(a.opts.Bounds, items) {
			keys = append(keys, item.Key)
		}
	}
	a.Delete(keys...)
}

// entry returns an answer of a size on disk as it is in memory.
func (r *Answer[T]) entry(size int) *Answer[T] {
	return &Answer[T]{User: r.User, Used: r.Used, About: r.About, size: int64(size + r.Extra)}
}

// An answer on disk is a version, the time of last use (Unix milliseconds, 8 bytes), the length of
// the head as a varint, the head as JSON, and the body.
const (
	answerVersion = 1
	timeEnd       = 1 + 8
)

type answerHead[T any] struct {
	User  string `json:"user"`
	About T      `json:"about"`
}

func (r *Answer[T]) bytes() []byte {
	head, err := json.Marshal(answerHead[T]{r.User, r.About})
	if err != nil {
		panic(err) // owners have strings in it
	}
	b := make([]byte, timeEnd, timeEnd+binary.MaxVarintLen64+len(head)+len(r.Body))
	b[0] = answerVersion
	binary.BigEndian.PutUint64(b[1:], uint64(r.Used.UnixMilli()))
	b = binary.AppendUvarint(b, uint64(len(head)))
	return append(append(b, head...), r.Body...)
}

func timeOf(value []byte) time.Time {
	return time.UnixMilli(int64(binary.BigEndian.Uint64(value[1:])))
}

var errAnswer = errors.New("not an answer")

// parse decodes an answer, whose body is a part of b.
func parse[T any](b []byte) (Answer[T], error) {
	if len(b) < timeEnd || b[0] != answerVersion {
		return Answer[T]{}, errAnswer
	}
	rest := b[timeEnd:]
	length, n := binary.Uvarint(rest)
	if n <= 0 || length > uint64(len(rest)-n) {
		return Answer[T]{}, errAnswer
	}
	end := n + int(length)
	var head answerHead[T]
	if err := json.Unmarshal(rest[n:end], &head); err != nil {
		return Answer[T]{}, fmt.Errorf("read an answer: %w", err)
	}
	return Answer[T]{User: head.User, Used: timeOf(b), About: head.About, Body: rest[end:]}, nil
}
