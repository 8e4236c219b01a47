package log_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/edgehub-io/edgehub/cache/log"
)

// owner is a State as small as possible: what the file should have.
type owner struct {
	log *log.Log

	mu     sync.Mutex
	tables map[string]map[string]row
	lost   []error
	full   bool // it is not empty, as far as the log knows
	given  []string
	found  []log.Sum // that are damaged
	// attempts to open the file late, and whether they succeeded
	attempts []bool
	walked   func(table string) // called after Rows; may be nil
}

type row struct {
	value  string
	bodies []log.Sum
}

func (o *owner) Tables() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Sorted(maps.Keys(o.tables))
}

func (o *owner) Rows(table string) (rows []log.Row) {
	if o.walked != nil {
		defer func() { o.walked(table) }()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(o.tables[table])) {
		r := log.Row{Key: key, Value: []byte(o.tables[table][key].value)}
		for _, sum := range o.tables[table][key].bodies {
			r.Bodies = append(r.Bodies, log.Body{Sum: sum})
		}
		rows = append(rows, r)
	}
	return rows
}

func (o *owner) Apply(c log.Change) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.applyLocked(&c)
}

func (o *owner) applyLocked(c *log.Change) {
	t := o.tables[c.Table]
	if t == nil || c.Clear {
		t = map[string]row{}
	}
	for _, key := range c.Delete {
		delete(t, key)
	}
	for _, r := range c.Put {
		made := row{value: string(r.Value)}
		for _, b := range r.Bodies {
			made.bodies = append(made.bodies, b.Sum)
		}
		t[r.Key] = made
	}
	if o.tables[c.Table] = t; len(t) == 0 {
		delete(o.tables, c.Table)
	}
}

func (o *owner) Lost(cause error) { o.lost = append(o.lost, cause) }

func (o *owner) GivenUp(table string) { o.given = append(o.given, table) }

func (o *owner) Damaged(sum log.Sum, _ error) { o.found = append(o.found, sum) }

func (o *owner) attempted(_ bool, err error) { o.attempts = append(o.attempts, err == nil) }

func (o *owner) IsEmpty() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.full
}

// change changes memory, and puts the change.
func (o *owner) change(t testing.TB, changes ...log.Change) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range changes {
		o.applyLocked(&changes[i])
	}
	if err := o.log.Put(changes...); err != nil {
		t.Error(err)
	}
}

// state is a copy of the state.
func (o *owner) state() map[string]map[string]row {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := map[string]map[string]row{}
	for name, t := range o.tables {
		all[name] = maps.Clone(t)
	}
	return all
}

// put is a change of one row, whose bodies are given.
func put(table, key, value string, bodies ...string) log.Change {
	r := log.Row{Key: key, Value: []byte(value)}
	for _, b := range bodies {
		r.Bodies = append(r.Bodies, log.Body{Sum: log.SumOf([]byte(b)), Bytes: []byte(b)})
	}
	return log.Change{Table: table, Put: []log.Row{r}}
}

func drop(table string) log.Change { return log.Change{Table: table, Clear: true} }

func remove(table string, keys ...string) log.Change { return log.Change{Table: table, Delete: keys} }

// text is a body.
func text(of string, size int) string {
	return string(bytes.Repeat([]byte(of+" "), size/(len(of)+1)+1))[:size]
}

// open opens a log that is closed when the test ends.
func open(t testing.TB, dir string, opts log.Options) *owner {
	t.Helper()
	o, err := tryOpen(t, dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func tryOpen(t testing.TB, dir string, opts log.Options) (*owner, error) {
	t.Helper()
	o := &owner{tables: map[string]map[string]row{}}
	l, err := log.New(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	o.log = l
	t.Cleanup(func() { l.Close() })
	return o, l.Open(o)
}

// flush commits.
func (o *owner) flush(t testing.TB) {
	t.Helper()
	if err := o.log.Flush(); err != nil {
		t.Fatal(err)
	}
}

func (o *owner) close(t testing.TB) {
	t.Helper()
	if err := o.log.Close(); err != nil {
		t.Fatal(err)
	}
}

// run runs the log until stop is called.
func (o *owner) run(t testing.TB) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- o.log.Run(ctx, o.attempted) }()
	return func() {
		t.Helper()
		if cancel(); true {
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
		}
	}
}

// mustBe checks that the state is what it should be, and returns how many bodies cannot be read. They are
// damaged, and never wrong.
func (o *owner) mustBe(t testing.TB, want map[string]map[string]row) (damaged int) {
	t.Helper()
	if got := o.state(); !reflect.DeepEqual(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	return o.damaged(t)
}

// damaged returns how many bodies cannot be read.
func (o *owner) damaged(t testing.TB) (damaged int) {
	t.Helper()
	for _, table := range o.state() {
		for key, r := range table {
			for _, sum := range r.bodies {
				b, err := o.log.Body(sum)
				switch {
				case errors.Is(err, log.ErrCorrupt):
					damaged++
				case err != nil || log.SumOf(b) != sum:
					t.Fatalf("a body of %s: %d bytes, %v", key, len(b), err)
				}
			}
		}
	}
	return damaged
}

// mustBeWhole checks that nothing was lost, and nothing is damaged.
func (o *owner) mustBeWhole(t testing.TB, want map[string]map[string]row) {
	t.Helper()
	if damaged := o.mustBe(t, want); damaged > 0 || len(o.lost) > 0 {
		t.Fatalf("%d bodies cannot be read, and lost: %v", damaged, o.lost)
	}
}

func readFile(t testing.TB, dir string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "cache.log"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func writeFile(t testing.TB, dir string, b []byte) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "cache.log"), b, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// fast returns a folder in memory, for tests that open thousands of files.
func fast(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "log")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// slots is the size of the header.
const slots = 8 << 10

var key = bytes.Repeat([]byte{7}, 32)

// options are the two kinds of files.
func options() map[string]log.Options {
	return map[string]log.Options{"plain": {}, "encrypted": {Key: key}}
}

func names(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("pod-%02d", i))
	}
	return all
}
