package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"

	wal "github.com/edgehub-io/edgehub/cache/log"
	"github.com/edgehub-io/edgehub/cache/spool"
	"github.com/edgehub-io/edgehub/cache/view"
)

// Retire prepares the cache in a folder, which nobody has open, for being set aside: it belongs to another cluster or node.
// Secrets are erased, and so is all that is not an object: tokens, answers to reviews, and Events, of which it returns how many
// waited. What cannot be read, or not be written anew, is erased as a whole. Its errors are log.ErrLocked, and those of a folder
// that cannot be written.
func Retire(dir string, key []byte, log *slog.Logger) (events int, err error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	events, err = retire(dir, wal.Options{Key: key, Logger: log})
	if errors.Is(err, wal.ErrLocked) {
		return 0, fmt.Errorf("retire cache: %w", err)
	}
	if err != nil {
		log.Warn("the cache cannot be rid of its Secrets; all of it is erased", "folder", dir, "err", err)
		err = wal.Erase(dir)
	}
	return events, err
}

func retire(dir string, opts wal.Options) (events int, err error) {
	l, err := wal.New(dir, opts)
	if err != nil {
		return 0, err
	}
	if err := l.Open(former{}); err != nil {
		return 0, err
	}
	events = len(l.Table(spool.Table).Keys())
	l.Forget()
	return events, errors.Join(l.Rewrite(), l.Close())
}

// former is what a cache has of objects, by the tables of the log and the names of objects, that may be kept for a person to look at. It is the
// state of the log in place of [view.Views].
type former map[string]map[string]wal.Row

// Tables is for the log.
func (f former) Tables() []string { return slices.Collect(maps.Keys(f)) }

// Rows is for the log.
func (f former) Rows(table string) (rows []wal.Row) {
	for _, name := range slices.Sorted(maps.Keys(f[table])) {
		rows = append(rows, f[table][name])
	}
	return rows
}

// Apply is for the log.
func (f former) Apply(c wal.Change) {
	of, ok := view.ResourceOf(c.Table)
	if !ok || of == secretsResource {
		return
	}
	if f[c.Table] == nil || c.Clear {
		f[c.Table] = map[string]wal.Row{}
	}
	for _, name := range c.Delete {
		delete(f[c.Table], name)
	}
	for _, r := range c.Put {
		r.Value = slices.Clone(r.Value)
		f[c.Table][r.Key] = r
	}
}

// Lost is for the log.
func (former) Lost(error) {}

// GivenUp is for the log, to which nothing is put.
func (former) GivenUp(string) {}

// Damaged is for the log, which leaves out what is damaged.
func (former) Damaged(wal.Sum, error) {}

// IsEmpty is for the log.
func (former) IsEmpty() bool { return true }
