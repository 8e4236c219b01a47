package identity

import (
	"encoding/json"
	"errors"
	"time"
)

// stored is a record on disk.
type stored struct {
	User     User      `json:"user"`
	Expires  time.Time `json:"expires,omitzero"`
	Reviewed time.Time `json:"reviewed"`
	Used     int64     `json:"used"` // in Unix nanoseconds
}

// put queues a record for the disk.
func (t *Tokens) put(hash string, r *record) {
	value, err := json.Marshal(stored{User: r.user, Expires: r.expires, Reviewed: r.reviewed, Used: r.used})
	if err != nil {
		return // a clock beyond the year 9999
	}
	t.opts.Table.Put(hash, value)
}

var errStored = errors.New("this is no token's record")

// Load reads the stored tokens. It is called again after a file was opened late, which may have brought another salt: what was
// learned until then is newer, and is stored by that one. A Token of a request that is under way then is not known any
// more; its next review is recorded for the right hash.
func (t *Tokens) Load() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	before, salted := t.tokens, t.hash("")
	rehash := salted != t.salted
	t.salted, t.tokens = salted, map[string]*record{}
	clear(t.byUser)
	for h, r := range before {
		if rehash {
			t.opts.Table.Delete(h)
			if r.secret.text == "" {
				continue
			}
			h = t.hash(r.secret.text)
			t.put(h, r)
		}
		t.setLocked(h, r)
	}
	err := t.opts.Table.Load(t.loadLocked)
	t.evictLocked()
	return err
}

// loadLocked takes a record, unless memory has a newer one.
func (t *Tokens) loadLocked(hash string, value []byte) error {
	var s stored
	if json.Unmarshal(value, &s) != nil || s.User.Name == "" {
		return errStored
	}
	if t.tokens[hash] == nil {
		r := &record{user: s.User, key: s.User.Key(), expires: s.Expires, reviewed: s.Reviewed, used: s.Used, written: s.Used}
		if r.reviewed.After(time.Now()) { // the clock was set back
			r.reviewed = time.Time{}
		}
		t.setLocked(hash, r)
	}
	return nil
}
