package fuzzcache

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/edgehub-io/edgehub/cache/store"
)

// storeFiles are the hub's, and those with copySuffix are this test's: the store as it was some time ago.
var storeFiles = []string{"cache.log", "cache.index"}

const copySuffix = ".copy-of-the-test"

func (w *world) storePath(name string) string { return filepath.Join(w.hub.Root, "cache", name) }

// spoil kills the hub, and starts it with a store that is damaged, cut short, gone, or
// from before. What it serves then has to be right, but may be as old as that store.
func (w *world) spoil(r *rand.Rand) {
	ended := w.log.during(&w.log.trouble, hubIsDown)
	w.hub.Kill()
	w.forgetSeen()
	w.spoiled = true
	w.note("the hub is killed; its store: %s", w.spoilStore(r))
	w.did("spoiled stores")
	w.hub.Start()
	ended()
	w.note("the hub serves")
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
		w.must(copyTo(w.storePath(name), filepath.Join(dir, name)))
	}
	s, err := store.Open(dir, store.Options{})
	w.must(err)
	damage := errors.Join(s.Recovery().Cause, s.Check())
	w.must(s.Close())
	return damage != nil
}

// spoilStore damages the store of a hub that does not run, and returns how.
func (w *world) spoilStore(r *rand.Rand) string {
	if w.copied && r.IntN(3) == 0 {
		for _, name := range storeFiles {
			w.must(copyTo(w.storePath(name+copySuffix), w.storePath(name)))
		}
		return "as it was before"
	}
	what := ""
	for _, name := range storeFiles {
		if r.IntN(3) > 0 {
			what += name + " " + w.spoilFile(r, w.storePath(name)) + " "
		}
	}
	return what
}

// spoilFile damages one file of the store, and returns how.
func (w *world) spoilFile(r *rand.Rand, main string) string {
	body, err := os.ReadFile(main)
	w.must(err)
	if w.copied && r.IntN(4) == 0 {
		w.must(copyTo(main+copySuffix, main))
		return "as it was before"
	}
	var what string
	switch r.IntN(5) {
	case 0:
		what, body = "cut short", body[:r.IntN(len(body))]
	case 1:
		what = "with pages of zeros"
		for range 1 + r.IntN(8) {
			clear(pageOf(r, body))
		}
	case 2:
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
	w.must(os.WriteFile(main, body, 0o600))
	return what
}

func pageOf(r *rand.Rand, body []byte) []byte {
	const page = 4096
	n := r.IntN(max(1, len(body)/page))
	return body[n*page : min(len(body), (n+1)*page)]
}

// copyStore keeps the store of a hub that does not run as it is.
func (w *world) copyStore() {
	for _, name := range storeFiles {
		err := copyTo(w.storePath(name), w.storePath(name+copySuffix))
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
