package fuzzcache

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	wal "github.com/edgehub-io/edgehub/cache/log"
)

// storeFiles are the hub's.
var storeFiles = []string{"cache.log"}

func (w *world) storePath(name string) string { return filepath.Join(w.hub.Root, "cache", name) }

// copyPath is where the store lies as it was some time ago.
func (w *world) copyPath(name string) string { return filepath.Join(w.copies, name) }

// spoil kills the hub, and starts it with a store that is damaged. What it serves then has to be right, but may
// be as old as that store.
func (w *world) spoil(_ context.Context, r *rand.Rand) {
	w.whileDown(true, func() { w.damageStore(r) })
}

// damageStore damages the store of a hub that does not run, cuts it short, or has it as it was before.
func (w *world) damageStore(r *rand.Rand) {
	w.forgetSeen()
	w.spoiled = true
	w.note("the store: %s", w.spoilStore(r))
	w.did("spoiled stores")
}

// forgetSeen takes away all that was seen of a hub that does not run.
func (w *world) forgetSeen() {
	now := time.Now()
	for _, u := range w.users {
		u.sight.forget(now)
	}
	w.statuses.lost(time.Time{})
}

// forgetSpoiled takes away what was seen of a hub that was stopped, if its store was spoiled
// before: what it kept since then may be lost with the store, as soon as it meets the damage.
// While it runs, it has to remember what it has shown.
func (w *world) forgetSpoiled() {
	if !w.spoiled {
		return
	}
	w.forgetSeen()
	w.spoiled = w.storeIsDamaged()
}

// storeIsDamaged reads the whole store of a hub that does not run. It opens a copy: the store
// itself would be put right.
func (w *world) storeIsDamaged() bool {
	dir := w.t.TempDir()
	for _, name := range storeFiles {
		if err := copyTo(w.storePath(name), filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			w.must(err)
		}
	}
	l, err := wal.New(dir, wal.Options{})
	w.must(err)
	rows := &storedRows{tables: map[string]map[string]wal.Row{}}
	w.must(l.Open(rows))
	w.must(errors.Join(l.Rewrite(), l.Close())) // that reads all bodies
	return rows.lost
}

// storedRows is what a store has: the state of its log.
type storedRows struct {
	tables map[string]map[string]wal.Row
	lost   bool // some changes are, or bodies
}

func (s *storedRows) Tables() []string { return slices.Collect(maps.Keys(s.tables)) }

func (s *storedRows) Rows(table string) []wal.Row {
	return slices.Collect(maps.Values(s.tables[table]))
}

func (s *storedRows) Apply(c wal.Change) {
	if s.tables[c.Table] == nil || c.Clear {
		s.tables[c.Table] = map[string]wal.Row{}
	}
	for _, key := range c.Delete {
		delete(s.tables[c.Table], key)
	}
	for _, r := range c.Put {
		r.Value = slices.Clone(r.Value)
		s.tables[c.Table][r.Key] = r
	}
}

func (s *storedRows) Lost(error) { s.lost = true }

func (*storedRows) GivenUp(string) {}

func (s *storedRows) Damaged(wal.Sum, error) { s.lost = true }

func (*storedRows) IsEmpty() bool { return true }

// spoilStore damages the store of a hub that does not run, and returns how.
func (w *world) spoilStore(r *rand.Rand) string {
	if w.copied && r.IntN(3) == 0 {
		for _, name := range storeFiles {
			w.must(copyTo(w.copyPath(name), w.storePath(name)))
		}
		return "as it was before"
	}
	what := ""
	for _, name := range storeFiles {
		if r.IntN(3) > 0 {
			what += name + " " + w.spoilFile(r, name) + " "
		}
	}
	return what
}

// spoilFile damages one file of the store, and returns how.
func (w *world) spoilFile(r *rand.Rand, name string) string {
	file := w.storePath(name)
	body, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) || len(body) == 0 {
		return "not there" // it was damaged, and the hub has not written it again
	}
	w.must(err)
	var what string
	n := r.IntN(8)
	if n < 2 && !w.copied {
		n += 2
	}
	switch n {
	case 0:
		what = "as it was before"
		body, err = os.ReadFile(w.copyPath(name))
		w.must(err)
	case 1:
		what = "with pages as they were before"
		before, err := os.ReadFile(w.copyPath(name))
		w.must(err)
		for at := 0; at+page <= min(len(body), len(before)); at += page {
			if r.IntN(4) == 0 {
				copy(body[at:at+page], before[at:])
			}
		}
	case 2:
		what, body = "cut short", body[:r.IntN(len(body))]
	case 3:
		what, body = "without its end", body[:len(body)-1-r.IntN(min(len(body), 64<<10))]
	case 4:
		what = "with pages of zeros"
		for range 1 + r.IntN(8) {
			clear(pageOf(r, body))
		}
	case 5:
		what = "with pages that are others"
		for range 1 + r.IntN(8) {
			copy(pageOf(r, body), pageOf(r, body))
		}
	default:
		what = "with bits that are others"
		for range 1 << r.IntN(12) {
			body[r.IntN(len(body))] ^= 1 << r.IntN(8)
		}
	}
	w.must(os.WriteFile(file, body, 0o600))
	return what
}

const page = 4096

func pageOf(r *rand.Rand, body []byte) []byte {
	n := r.IntN(max(1, len(body)/page))
	return body[n*page : min(len(body), (n+1)*page)]
}

// copyStore keeps the store of a hub that does not run as it is.
func (w *world) copyStore() {
	for _, name := range storeFiles {
		err := copyTo(w.storePath(name), w.copyPath(name))
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		w.must(err)
	}
	w.copied = true
}

func copyTo(from, to string) error {
	body, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, body, 0o600)
}
