package log_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/edgehub-io/edgehub/cache/log"
)

// The contract: what was put and committed is there after a restart, and nothing else.
func TestWhatWasCommittedOutlivesARestart(t *testing.T) {
	for name, opts := range options() {
		t.Run(name, func(t *testing.T) {
			for _, tt := range []struct {
				name    string
				changes [][]log.Change // by commit
			}{
				{"nothing", nil},
				{"a row with a body", [][]log.Change{{put("pods", "a", "1", "body a")}}},
				{"a row without a body", [][]log.Change{{put("pods", "", "header")}}},
				{"a row with two bodies", [][]log.Change{{put("pods", "a", "1", "protobuf", "JSON")}}},
				{"an empty body", [][]log.Change{{put("pods", "a", "1", "")}}},
				{"a row that is replaced", [][]log.Change{{put("pods", "a", "1", "one")}, {put("pods", "a", "2", "two")}}},
				{"a row that is deleted", [][]log.Change{{put("pods", "a", "1", "one"), put("pods", "b", "1", "b")}, {remove("pods", "a")}}},
				{"a row that is deleted before it was committed", [][]log.Change{{put("pods", "a", "1", "one"), remove("pods", "a")}}},
				{"a row that is deleted and put again", [][]log.Change{{put("pods", "a", "1", "one")}, {remove("pods", "a"), put("pods", "a", "2", "one")}}},
				{"a table that is dropped", [][]log.Change{{put("pods", "a", "1", "one"), put("nodes", "n", "1", "one")}, {drop("pods")}}},
				{"a table that is dropped before it was committed", [][]log.Change{{put("pods", "a", "1", "one"), drop("pods")}}},
				{"a table that gets other rows", [][]log.Change{{put("pods", "a", "1", "one"), put("pods", "b", "1", "two")}, {drop("pods"), put("pods", "b", "1", "two")}}},
				{"a table of which a row is deleted after it was dropped", [][]log.Change{{put("pods", "a", "1", "one")}, {drop("pods"), put("pods", "b", "1", "two"), remove("pods", "b")}}},
				{"a body in two tables", [][]log.Change{{put("pods", "a", "1", "same"), put("mine", "a", "1", "same")}, {drop("pods")}}},
				{"one body for a row and the one that replaces it", [][]log.Change{{put("pods", "a", "1", "same"), put("pods", "a", "2", "same")}, {put("pods", "a", "3", "same")}}},
			} {
				t.Run(tt.name, func(t *testing.T) {
					dir := t.TempDir()
					o := open(t, dir, opts)
					for _, changes := range tt.changes {
						o.change(t, changes...)
						o.mustBeWhole(t, o.state()) // while it waits
						o.flush(t)
						o.mustBeWhole(t, o.state())
					}
					want := o.state()
					for range 2 {
						o.close(t)
						o = open(t, dir, opts)
						o.mustBeWhole(t, want)
					}
					if err := o.log.Rewrite(); err != nil {
						t.Fatal(err)
					}
					o.mustBeWhole(t, want)
					o.close(t)
					open(t, dir, opts).mustBeWhole(t, want)
				})
			}
		})
	}
}

func TestABodyIsStoredOnce(t *testing.T) {
	dir := t.TempDir()
	o := open(t, dir, log.Options{})
	body := text("a ConfigMap", 100_000)
	o.change(t, put("one", "a", "1", body))
	o.flush(t)
	before := o.log.Stats().FileBytes
	for i := range 20 {
		o.change(t, put(fmt.Sprint("consumer ", i), "a", "1", body))
		o.flush(t)
	}
	o.close(t)
	o = open(t, dir, log.Options{}) // what another process has written is compared, and not written again
	o.change(t, put("another", "a", "1", body))
	o.flush(t)
	if n := o.log.Stats().FileBytes - before; n > int64(len(body))/2 {
		t.Errorf("21 more consumers took %d bytes, of a body of %d", n, len(body))
	}
	o.mustBeWhole(t, o.state())
}

func TestABodyThatIsNeitherGivenNorHeldIsRefused(t *testing.T) {
	o := open(t, t.TempDir(), log.Options{})
	held := put("pods", "a", "1", "held")
	o.change(t, held)
	unknown := log.Change{Table: "pods", Put: []log.Row{{Key: "b", Bodies: []log.Body{{Sum: log.SumOf([]byte("unknown"))}}}}}
	other := put("other", "x", "1", "x")
	if err := o.log.Put(other, unknown); !errors.Is(err, log.ErrNoBody) {
		t.Errorf("got error %v", err)
	}
	if b, err := o.log.Body(log.SumOf([]byte("x"))); err == nil {
		t.Errorf("a part of what was refused was put: %q", b)
	}
	again := log.Change{Table: "mine", Put: []log.Row{{Key: "a", Bodies: []log.Body{{Sum: held.Put[0].Bodies[0].Sum}}}}}
	for _, when := range []string{"while it waits", "when it was committed"} {
		if !o.log.Holds(held.Put[0].Bodies[0].Sum) {
			t.Errorf("%s, the body is not held", when)
		}
		o.change(t, again)
		o.flush(t)
	}
	o.mustBeWhole(t, o.state())
}

// The last state alone of what changes all the time is written.
func TestABodyThatWasReplacedBeforeACommitIsNotWritten(t *testing.T) {
	o := open(t, t.TempDir(), log.Options{})
	for i := range 100 {
		o.change(t, put("pods", "a", fmt.Sprint(i), text(fmt.Sprint("version ", i), 10_000)))
	}
	if n := o.log.Stats().PendingBytes; n > 20_000 {
		t.Errorf("%d bytes wait", n)
	}
	o.flush(t)
	if s := o.log.Stats(); s.FileBytes > 30_000 || s.PendingBytes != 0 {
		t.Errorf("got %+v", s)
	}
}

func TestEncryptedFilesHaveNoNames(t *testing.T) {
	dir := t.TempDir()
	o := open(t, dir, log.Options{Key: key})
	o.change(t, put("a table", "a name", "a value", "a secret body"))
	o.log.Table("tokens").Put("a token", []byte(text("a long value", 100)))
	o.flush(t)
	if err := o.log.Rewrite(); err != nil {
		t.Fatal(err)
	}
	o.close(t)
	file := string(readFile(t, dir))
	sum := log.SumOf([]byte("a secret body"))
	for _, secret := range []string{"a table", "a name", "a value", "a secret", "tokens", "a token", "a long value", string(sum[:8])} {
		if strings.Contains(file, secret) {
			t.Errorf("%q can be read in the file", secret)
		}
	}
}
