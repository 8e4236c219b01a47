package review

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/quota"
	"github.com/edgehub-io/edgehub/cache/table"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// Options of Reviews.
type Options struct {
	// TTL is how long an answer is repeated. With 0 no answer is stored, and every question
	// is answered with no.
	TTL time.Duration
	// Grace is how long after its expiry a token is still its user's; 0 is the whole outage. See
	// identity.Options.
	Grace time.Duration
	// MaxCount and MaxBytes bound the answers about all users together, with the questions in
	// memory: 1,000 and 4 MiB by default. An answer has some 500 bytes, a question up to
	// 2,000, and a user of a kubelet's API needs two to ten.
	MaxCount int
	MaxBytes int64
	Logger   *slog.Logger // logs damage; by default nothing is logged
}

// Reviews are the stored answers.
type Reviews struct {
	table *table.Table
	opts  Options

	mu      sync.Mutex
	clock   *clock
	marked  time.Time // the clock, as stored
	entries map[string]*entry
}

// record is an answer on disk, as JSON.
type record struct {
	User   string          `json:"user"`  // name of the reviewed user
	Given  time.Time       `json:"given"` // by clock
	Status json.RawMessage `json:"status"`
}

// entry is an answer in memory, without the status.
type entry struct {
	user    string    // user key; it has no UID, which does not matter for the quota
	given   time.Time // when an apiserver last gave the answer
	written time.Time // given, as stored
	size    int64
	sum     [sha256.Size]byte // of the status

	asked    time.Time // when an apiserver was last asked; zero after a restart
	question *Question // nil after a restart: the token is not on disk
}

func (r *record) entry(size int) *entry {
	user := identity.User{Name: r.User}
	return &entry{user: user.Key(), given: r.Given, written: r.Given, size: int64(size), sum: sha256.Sum256(r.Status)}
}

const (
	// tableName is the name of the store's table.
	tableName = "reviews"
	// keyClock is the key of the last known time of the clock. All others are hashes.
	keyClock = "clock"

	// maxBody bounds a question and its answer, in bytes. They usually have 2,000.
	maxBody = 64 << 10

	// writesPerTTL bounds how often an answer that is confirmed again and again, as for a
	// scraper of metrics, is written within its TTL. It is also the precision of its age
	// after a restart.
	writesPerTTL = 24
)

// Open returns the answers in a table that have not expired.
func Open(t table.Store, o Options) (*Reviews, error) {
	o.MaxCount = cmp.Or(o.MaxCount, 1000)
	o.MaxBytes = cmp.Or(o.MaxBytes, 4<<20)
	b, err := table.Open(t, tableName, o.Logger)
	if err != nil {
		return nil, fmt.Errorf("open the kept reviews: %w", err)
	}
	k := &Reviews{table: b, opts: o, entries: make(map[string]*entry)}
	err = b.Load(func(key string, value []byte) error {
		var r record
		if err := json.Unmarshal(value, &r); err != nil {
			return err
		}
		if r.Given.After(k.marked) {
			k.marked = r.Given
		}
		if key != keyClock {
			k.entries[key] = r.entry(len(value))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("open the kept reviews: %w", err)
	}
	k.clock = newClock(k.marked)
	b.Delete(k.evictLocked()...)
	return k, nil
}

// Keep stores the answer of an apiserver, 201, to a review that was posted to a resource, or
// deletes the stored one. It keeps no reference to the slices. After an error the answer
// cannot be repeated.
func (k *Reviews) Keep(resource schema.GroupVersionResource, request []byte, requestType string, response []byte, responseType string) error {
	if len(request) > maxBody || len(response) > maxBody {
		return fmt.Errorf("keep a review of %d bytes, and its answer of %d: %w", len(request), len(response), wire.ErrTooLarge)
	}
	asked, err := decode(resource, request, requestType)
	if err != nil {
		return err
	}
	answered, err := decode(resource, response, responseType)
	if err != nil {
		return err
	}
	key := k.table.Key(asked.parts...)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.opts.TTL <= 0 || !answered.positive {
		k.forgetLocked(key)
		return nil
	}
	return k.keepLocked(key, answered, k.clock.now(), &Question{resource, bytes.Clone(request), requestType})
}

// keepLocked stores a yes that was given at a time.
func (k *Reviews) keepLocked(key string, answered *question, given time.Time, q *Question) error {
	status, err := json.Marshal(answered.status)
	if err != nil {
		return err
	}
	r := record{User: answered.user, Given: given, Status: status}
	value, err := json.Marshal(r)
	if err != nil {
		return err // a clock beyond the year 9999
	}
	next := r.entry(len(value) + len(q.Body))
	next.asked, next.question = time.Now(), q
	old := k.entries[key]
	k.entries[key] = next
	if old != nil && old.sum == next.sum && given.Sub(old.written) < k.opts.TTL/writesPerTTL {
		if _, stored := k.table.Get(key); stored { // the cache's file may have been replaced
			next.written = old.written
			return nil
		}
	}
	k.table.Put(key, value)
	if given.After(k.marked) {
		k.marked = given
	}
	k.table.Delete(k.evictLocked()...)
	return nil
}

// Answer returns the body of the answer, a 201, to a review that was posted to a resource, in
// an encoding that accept allows: the stored answer, or else no, with the reason why. An
// error means that the review cannot be read, or that no encoding is accepted.
func (k *Reviews) Answer(resource schema.GroupVersionResource, request []byte, requestType, accept, why string) (body []byte, contentType string, err error) {
	asked, err := decode(resource, request, requestType)
	if err != nil {
		return nil, "", err
	}
	status := k.status(k.table.Key(asked.parts...))
	if status != nil && identity.Expired(asked.token, k.opts.Grace, time.Now()) {
		status, why = nil, "edgehub: "+identity.ErrExpired.Error()
	}
	return asked.answer(status, why, accept)
}

// status returns the stored status, or nil.
func (k *Reviews) status(key string) []byte {
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
		return nil // the entry stays: the disk may recover
	}
	var r record
	if json.Unmarshal(value, &r) != nil {
		return nil
	}
	return r.Status
}

// markLocked stores the time, so that answers do not last longer after a restart with a
// clock that was set back.
func (k *Reviews) markLocked(now time.Time) {
	if now.Sub(k.marked) < min(k.opts.TTL/writesPerTTL, time.Minute) {
		return
	}
	if value, err := json.Marshal(record{Given: now}); err == nil {
		k.table.Put(keyClock, value)
		k.marked = now
	}
}

func (k *Reviews) forgetLocked(key string) {
	if k.entries[key] != nil {
		delete(k.entries, key)
		k.table.Delete(key)
	}
}

// evictLocked removes expired answers and those beyond the bounds, and returns their keys.
func (k *Reviews) evictLocked() (keys []string) {
	now := k.clock.now()
	items := make([]quota.Item[string], 0, len(k.entries))
	for key, e := range k.entries {
		if now.Sub(e.given) >= k.opts.TTL {
			keys = append(keys, key)
			continue
		}
		items = append(items, quota.Item[string]{Key: key, User: e.user, Bytes: e.size, Last: e.given.UnixNano()})
	}
	for _, item := range quota.Excess(quota.Bounds{Count: k.opts.MaxCount, Bytes: k.opts.MaxBytes}, items) {
		keys = append(keys, item.Key)
	}
	for _, key := range keys {
		delete(k.entries, key)
	}
	return keys
}
