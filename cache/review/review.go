package review

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/quota"
	"github.com/edgehub-io/edgehub/cache/table"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// Options of Reviews.
type Options struct {
	// TTL is how long an answer is given again. 0 remembers nothing, and every answer
	// is no.
	TTL time.Duration
	// MaxCount and MaxBytes bound the answers about all users together: 1,000 and 4 MiB
	// by default. An answer has some 500 bytes, and a user of a kubelet's API needs two
	// to ten.
	MaxCount int
	MaxBytes int64
	Logger   *slog.Logger // of damage; by default nothing is logged
}

// Reviews is the answers that are remembered.
type Reviews struct {
	table *table.Table
	opts  Options

	mu      sync.Mutex
	clock   *clock
	marked  time.Time // the clock, as the disk has it
	entries map[string]*entry
	bytes   int64
}

const (
	// tableName is the one of the store's table.
	tableName = "reviews"
	// keyClock is the key of the time that the clock has shown last. The others are hashes.
	keyClock = "clock"

	// maxBody bounds a question and its answer, in bytes; usual ones have 2,000.
	maxBody = 64 << 10

	// writesPerTTL is how exactly the age of an answer is known after a restart: one that
	// is confirmed again and again, as for a scraper of metrics, is written so many times
	// within its life.
	writesPerTTL = 24
)

// Open returns the answers that t holds and that are not too old.
func Open(t table.Store, o Options) (*Reviews, error) {
	if o.MaxCount <= 0 {
		o.MaxCount = 1000
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 4 << 20
	}
	b, err := table.Open(t, tableName, o.Logger)
	if err != nil {
		return nil, fmt.Errorf("open the kept reviews: %w", err)
	}
	k := &Reviews{table: b, opts: o, entries: make(map[string]*entry)}
	var unreadable []string
	err = b.All(func(key string, value []byte) {
		r, err := parse(value)
		switch {
		case err != nil:
			unreadable = append(unreadable, key)
			return
		case r.Given.After(k.marked):
			k.marked = r.Given
		}
		if key != keyClock {
			k.set(key, r.entry(len(value)))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("open the kept reviews: %w", err)
	}
	k.clock = newClock(k.marked)
	b.Delete(append(unreadable, k.evict()...)...)
	return k, nil
}

// Keep remembers the answer of an apiserver, 201, to a review that was posted to a
// resource, or takes back what it said before. It keeps nothing of the slices. An error
// says that the answer cannot be given again, and why.
func (k *Reviews) Keep(resource schema.GroupVersionResource, request []byte, requestType string, response []byte, responseType string) error {
	if len(request) > maxBody || len(response) > maxBody {
		return fmt.Errorf("keep a review of %d bytes, and its answer of %d: %w", len(request), len(response), wire.ErrTooLarge)
	}
	asked, err := decode(resource, request, requestType)
	if err != nil {
		return err
	}
	key, err := k.key(&asked)
	if err != nil {
		return err
	}
	answered, err := decode(resource, response, responseType)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.opts.TTL <= 0 || !answered.positive() {
		k.forgetLocked(key)
		return nil
	}
	return k.keepLocked(key, &answered)
}

func (k *Reviews) keepLocked(key string, answered *question) error {
	status, err := answered.status()
	if err != nil {
		return err
	}
	now := k.clock.now()
	r := record{User: answered.user(), Given: now, Status: status}
	value, err := r.bytes()
	if err != nil {
		return err // a clock beyond the year 9999
	}
	next := r.entry(len(value))
	if old := k.entries[key]; old != nil && old.sum == next.sum && now.Sub(old.written) < k.opts.TTL/writesPerTTL {
		if _, there := k.table.Get(key); there { // the cache's file may have been replaced
			old.given = now
			return nil
		}
	}
	k.set(key, next)
	k.table.Put(key, value)
	k.marked = now
	k.table.Delete(k.evict()...)
	return nil
}

// Answer returns the answer, for a 201, to a review that was posted to a resource, in an
// encoding that accept allows: what an apiserver has said, or else no, because of why.
// An error says that the review cannot be read, or no encoding is accepted.
func (k *Reviews) Answer(resource schema.GroupVersionResource, request []byte, requestType, accept, why string) (body []byte, contentType string, err error) {
	asked, err := decode(resource, request, requestType)
	if err != nil {
		return nil, "", err
	}
	key, err := k.key(&asked)
	if err != nil {
		return nil, "", err
	}
	return asked.answer(k.recall(key), why, accept)
}

// recall returns the status that was remembered, or nil.
func (k *Reviews) recall(key string) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.entries[key]
	if e == nil {
		return nil
	}
	now := k.clock.now()
	if now.Sub(e.given) >= k.opts.TTL {
		k.forgetLocked(key)
		return nil
	}
	k.markLocked(now)
	value, ok := k.table.Get(key)
	if !ok {
		return nil // for this time: the disk may come round
	}
	r, err := parse(value)
	if err != nil {
		return nil
	}
	return r.Status
}

// markLocked notes on disk how late it is, so that a restart with a clock that was set
// back does not make answers last longer.
func (k *Reviews) markLocked(now time.Time) {
	if now.Sub(k.marked) < min(k.opts.TTL/writesPerTTL, time.Minute) {
		return
	}
	r := record{Given: now}
	value, err := r.bytes()
	if err != nil {
		return
	}
	k.table.Put(keyClock, value)
	k.marked = now
}

// Len is the number of answers.
func (k *Reviews) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.entries)
}

// key stands for a question.
func (k *Reviews) key(q *question) (string, error) {
	parts, err := q.parts()
	if err != nil {
		return "", err
	}
	return k.table.Key(parts...), nil
}

func (k *Reviews) forgetLocked(key string) {
	if k.entries[key] != nil {
		k.unset(key)
		k.table.Delete(key)
	}
}

// set, unset and evict change what is known. The caller holds mu, or is alone.
func (k *Reviews) set(key string, e *entry) {
	k.unset(key)
	k.entries[key] = e
	k.bytes += e.size
}

func (k *Reviews) unset(key string) {
	if e := k.entries[key]; e != nil {
		k.bytes -= e.size
		delete(k.entries, key)
	}
}

// evict takes out what is too old or too much, and returns its keys.
func (k *Reviews) evict() (keys []string) {
	now := k.clock.now()
	items := make([]quota.Item[string], 0, len(k.entries))
	for key, e := range k.entries {
		if now.Sub(e.given) >= k.opts.TTL {
			k.unset(key)
			keys = append(keys, key)
			continue
		}
		items = append(items, quota.Item[string]{Key: key, User: e.user, Bytes: e.size, Last: e.given.UnixNano()})
	}
	for _, item := range quota.Excess(quota.Bounds{Count: k.opts.MaxCount, Bytes: k.opts.MaxBytes}, items) {
		k.unset(item.Key)
		keys = append(keys, item.Key)
	}
	return keys
}
