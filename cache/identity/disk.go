package identity

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/table"
)

// tableTokens stores known tokens by their salted hashes, in hexadecimal.
const tableTokens = "bearer-tokens"

// stored is a record on disk.
type stored struct {
	User     User      `json:"user"`
	Expires  time.Time `json:"expires,omitzero"`
	Reviewed time.Time `json:"reviewed"`
	Used     int64     `json:"used"` // in Unix nanoseconds
}

// put queues a record for the disk.
func (t *Tokens) put(h hash, r *record) {
	value, err := json.Marshal(stored{User: r.user, Expires: r.expires, Reviewed: r.reviewed, Used: r.used.Load()})
	if err != nil {
		return // a clock beyond the year 9999
	}
	_ = t.opts.Table.Put(store.Pair{Table: tableTokens, Key: h.String(), Value: value}) // the name is valid
}

// parse decodes a record, and returns nil if that fails.
func parse(key string, value []byte) (h hash, r *record) {
	var s stored
	if len(key) != hex.EncodedLen(len(h)) || json.Unmarshal(value, &s) != nil || s.User.Name == "" {
		return hash{}, nil
	}
	if _, err := hex.Decode(h[:], []byte(key)); err != nil {
		return hash{}, nil
	}
	r = &record{user: s.User, key: s.User.Key(), expires: s.Expires, reviewed: s.Reviewed}
	r.used.Store(s.Used)
	r.written.Store(s.Used)
	return h, r
}

// Load reads the stored tokens, which were hashed with this salt. It may be called again
// after a damaged store file was replaced: the tokens that are known already are then
// stored there, too, if the salt is the same.
func (t *Tokens) Load(salt []byte) error {
	found := map[hash]*record{}
	tokens, err := table.Open(t.opts.Table, tableTokens, nil) // its own salt is not used
	if err == nil {
		err = tokens.All(func(key string, value []byte) {
			if h, r := parse(key, value); r != nil {
				found[h] = r
			}
		})
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.tokens
	same := bytes.Equal(salt, t.salt)
	t.salt, t.tokens = salt, map[hash]*record{}
	clear(t.byUser)
	for h, r := range found {
		if known := before[h]; known != nil && same && known.user == r.user {
			r = known
		} else if r.reviewed.After(t.opts.Now()) { // the clock was set back
			r.reviewed = time.Time{}
		}
		t.setLocked(h, r)
	}
	for h, r := range before {
		if t.tokens[h] == nil && same {
			t.setLocked(h, r)
			t.put(h, r)
		}
	}
	for _, r := range t.tokens {
		t.evictLocked(r.key)
	}
	return err
}
