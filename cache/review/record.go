package review

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/edgehub-io/edgehub/cache/identity"
)

// record is what lies on disk of one answer, as JSON.
type record struct {
	User   string          `json:"user"`  // who was reviewed
	Given  time.Time       `json:"given"` // when, on the hub's own clock; see clock
	Status json.RawMessage `json:"status"`
}

func (r *record) bytes() ([]byte, error) { return json.Marshal(r) }

func parse(b []byte) (record, error) {
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return record{}, fmt.Errorf("read a kept review: %w", err)
	}
	return r, nil
}

// entry is what is known of an answer without reading it.
type entry struct {
	user    string // the key of who was reviewed; the UID does not matter for the quota
	given   time.Time
	written time.Time // given, as the disk has it
	size    int64
	sum     [sha256.Size]byte // of the status
}

func (r *record) entry(size int) *entry {
	user := identity.User{Name: r.User}
	return &entry{user: user.Key(), given: r.Given, written: r.Given, size: int64(size), sum: sha256.Sum256(r.Status)}
}
