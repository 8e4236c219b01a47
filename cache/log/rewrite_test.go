package log_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/log"
)

// The file is replaced again and again under 200 updates a second, while some read slowly.
func TestReadersAndWritersGoOnWhileTheFileIsReplaced(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var c committed
		o := open(t, dir, log.Options{Committed: c.count})
		o.log.Limit(100_000, 100_000)
		stop := o.run(t)
		for _, name := range names(50) {
			o.change(t, put("pods", name, "0", text(name, 2000)))
		}
		time.Sleep(2 * time.Second)
		ended := make(chan bool)
		for reader := range 5 {
			go func() {
				defer func() { ended <- true }()
				for range 8 {
					readSlowly(t, o, time.Duration(reader+1)*20*time.Millisecond)
				}
			}()
		}
		before, files := stat(t, dir), 0
		for i := range 60 * 200 {
			name := names(50)[i*7%50]
			o.change(t, put("pods", name, fmt.Sprint(i), text(fmt.Sprint(name, " at ", i), 2000)))
			if i%1000 == 999 {
				o.change(t, drop(fmt.Sprint("view ", i)), remove("pods", name), put("pods", name, "again", text(name, 2000)))
			}
			if time.Sleep(5 * time.Millisecond); i%200 == 0 && !os.SameFile(before, stat(t, dir)) {
				before, files = stat(t, dir), files+1
			}
		}
		for range 5 {
			<-ended
		}
		stop()
		if files < 3 || c.ok < 14 || c.failed > 0 {
			t.Errorf("%d new files, and commits %+v", files, c)
		}
		if n := stat(t, dir).Size(); n > 1_000_000 {
			t.Errorf("the file has %d bytes, of which 100,000 are needed", n)
		}
		want := o.state()
		o = open(t, dir, log.Options{})
		o.mustBeWhole(t, want)
		o.close(t)
	})
}

// readSlowly reads all pods as they were when it began.
func readSlowly(t *testing.T, o *owner, pause time.Duration) {
	r := o.log.NewReader()
	defer r.Close()
	for _, row := range o.Rows("pods") {
		_, err := r.Read([]log.Sum{row.Bodies[0].Sum}, func(_ int, b []byte) error {
			if log.SumOf(b) != row.Bodies[0].Sum {
				return errors.New("it is another one")
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s at %s: %v", row.Key, row.Value, err)
		}
		time.Sleep(pause)
	}
}

func TestSpaceOfWhatWasDroppedIsFreed(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, dir, log.Options{})
		o.change(t, put("pods", "a", "1", "one"))
		stop := o.run(t)
		for round := range 4 {
			big := drop("big")
			for i := range 3000 {
				big.Put = append(big.Put, put("", fmt.Sprint(i), "1", text(fmt.Sprint(round, i), 4000)).Put...)
			}
			o.change(t, big)
			time.Sleep(2 * time.Second)
			if n := o.log.Stats().FileBytes; n < 12_000_000 {
				t.Errorf("the file has %d bytes", n)
			}
			o.change(t, drop("big"))
			time.Sleep(2 * time.Second)
			if n := stat(t, dir).Size(); n > 100_000 {
				t.Errorf("the file has %d bytes after its largest table was dropped", n)
			}
		}
		stop()
		want := o.state()
		o = open(t, dir, log.Options{})
		o.mustBeWhole(t, want)
		o.close(t)
	})
}

// A start reads the last checkpoint, and what is behind it, whatever is before that.
func TestAStartDoesNotReadTheWholeFile(t *testing.T) {
	dir := t.TempDir()
	o := open(t, dir, log.Options{})
	o.log.Limit(10_000, 1<<40)
	for i := range 300 {
		o.change(t, put("pods", fmt.Sprint(i%10), fmt.Sprint(i), text(fmt.Sprint("pod at ", i), 1000)))
		o.flush(t)
	}
	want := o.state()
	o.close(t)
	file := readFile(t, dir)
	lost := len(file) - 100_000
	clear(file[slots:lost]) // of some bodies in there is a copy that is needed, but no commit and no checkpoint
	writeFile(t, dir, file)
	o = open(t, dir, log.Options{})
	if damaged := o.mustBe(t, want); damaged > 0 || len(o.lost) > 0 {
		t.Errorf("%d damaged, and lost %v", damaged, o.lost)
	}
}

// What was deleted stays in no file, nor in what the file system had for a file that was replaced.
func TestWhatWasDeletedIsOverwrittenWithinADay(t *testing.T) {
	const secret = "a Secret that was deleted"
	for name, tt := range map[string]struct {
		reader, restarts bool
	}{"nobody reads": {}, "somebody reads all the time": {reader: true}, "the hub restarts every six hours": {restarts: true}} {
		t.Run(name, func(t *testing.T) {
			dir, replaced := t.TempDir(), t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				o := open(t, dir, log.Options{})
				o.change(t, put("pods", "a", "1", "one"), put("secrets", secret, "1", text(secret, 100_000), secret))
				stop := o.run(t)
				if time.Sleep(5 * time.Hour); !tt.restarts {
					time.Sleep(18 * time.Hour)
				}
				if tt.reader {
					defer o.log.NewReader().Close()
				}
				if got := filesWith(t, secret, dir); got != "cache.log" {
					t.Fatalf("before it is deleted, %q have it", got)
				}
				if err := os.Link(filepath.Join(dir, "cache.log"), filepath.Join(replaced, "earlier")); err != nil {
					t.Fatal(err)
				}
				o.change(t, remove("secrets", secret))
				for n := range 5 {
					if time.Sleep(6 * time.Hour); tt.restarts {
						stop()
						o = open(t, dir, log.Options{})
						o.log.Limit(1, 1<<40) // each start reads a checkpoint that is newer
						stop = o.run(t)
						o.change(t, put("pods", "a", fmt.Sprint(n), "one"))
					}
				}
				time.Sleep(10 * time.Minute)
				if got := filesWith(t, secret, dir, replaced); got != "" {
					t.Errorf("a day after it was deleted, %q have it", got)
				}
				time.Sleep(25 * time.Hour) // the commit of the deletion was in the file
				before := stat(t, dir)
				time.Sleep(72 * time.Hour)
				if !os.SameFile(before, stat(t, dir)) {
					t.Error("the file was replaced, though nothing was deleted")
				}
				o.mustBeWhole(t, o.state())
				stop()
			})
		})
	}
}

// A client that does not read its answer keeps what was deleted for an hour. Then it gets an error, and never other bytes.
func TestAReaderIsCutAfterAnHour(t *testing.T) {
	dir, replaced := t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		const secret = "a Secret that was deleted"
		o := open(t, dir, log.Options{})
		var sums []log.Sum
		for i := range 3 {
			o.change(t, put("secrets", fmt.Sprint(i), "1", text(fmt.Sprint(secret, i), 200_000)))
			sums = append(sums, log.SumOf([]byte(text(fmt.Sprint(secret, i), 200_000))))
		}
		o.change(t, put("pods", "a", "1", "stays"))
		sums = append(sums, log.SumOf([]byte("stays")))
		stop := o.run(t)
		time.Sleep(time.Second)
		r := o.log.NewReader()
		defer r.Close()
		if err := os.Link(filepath.Join(dir, "cache.log"), filepath.Join(replaced, "earlier")); err != nil {
			t.Fatal(err)
		}
		o.change(t, drop("secrets"))
		time.Sleep(2 * time.Second)
		if err := o.log.Rewrite(); err != nil {
			t.Fatal(err)
		}
		read := func(n int) error {
			_, err := r.Read(sums[n:n+1], func(_ int, b []byte) error {
				if log.SumOf(b) != sums[n] {
					return errors.New("it is another one")
				}
				return nil
			})
			return err
		}
		if err := read(0); err != nil {
			t.Errorf("at once: %v", err)
		}
		time.Sleep(55 * time.Minute)
		if err := errors.Join(read(1), read(3)); err != nil {
			t.Errorf("before an hour has passed: %v", err)
		}
		time.Sleep(7 * time.Minute)
		if err := read(2); !errors.Is(err, log.ErrCut) {
			t.Errorf("after an hour: %v", err)
		}
		if err := read(3); err != nil {
			t.Errorf("what is still needed, after an hour: %v", err)
		}
		if got := filesWith(t, secret, dir, replaced); got != "" {
			t.Errorf("after an hour, %q have it", got)
		}
		stop()
	})
}

// What a Reader needs is read also if it was replaced before it was ever committed.
func TestAReaderReadsWhatWasReplacedBeforeACommit(t *testing.T) {
	o := open(t, t.TempDir(), log.Options{})
	o.log.Limit(1, 1<<40) // each commit has a checkpoint
	o.change(t, put("pods", "a", "1", "one"))
	r := o.log.NewReader()
	for i, when := range []string{"while it waits", "after a commit", "after two", "after three"} {
		o.change(t, put("pods", "a", fmt.Sprint(i+2), fmt.Sprint("version ", i)))
		var got []byte
		if _, err := r.Read([]log.Sum{log.SumOf([]byte("one"))}, func(_ int, b []byte) error {
			got = slices.Clone(b)
			return nil
		}); err != nil || string(got) != "one" {
			t.Errorf("%s: %q, %v", when, got, err)
		}
		o.flush(t)
	}
	r.Close()
	o.mustBeWhole(t, o.state())
}

// What a checkpoint does not name, a start does not know: no row may need it then.
func TestABodyThatNothingNeedsAtACheckpointMustBeGivenAgain(t *testing.T) {
	dir := t.TempDir()
	o := open(t, dir, log.Options{})
	o.log.Limit(1, 1<<40)
	body := put("pods", "a", "1", "one")
	o.change(t, body)
	o.flush(t)
	o.change(t, remove("pods", "a"), put("pods", "b", "1", "two"))
	o.flush(t)
	o.change(t, put("pods", "b", "2", "three"))
	o.flush(t)
	if o.log.Holds(body.Put[0].Bodies[0].Sum) {
		t.Error("it is held")
	}
	o.change(t, body)
	o.flush(t)
	want := o.state()
	o.close(t)
	open(t, dir, log.Options{}).mustBeWhole(t, want)
}

// The owner is asked for one table after the other, while rows change: what is on disk is one state nevertheless.
func TestACheckpointIsExactThoughRowsChangeMeanwhile(t *testing.T) {
	for name, write := range map[string]func(*owner) error{
		"before a commit": func(o *owner) error { return o.log.Flush() },
		"in a new file":   func(o *owner) error { return o.log.Rewrite() },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			o := open(t, dir, log.Options{})
			o.change(t, put("a", "moved", "1", text("moved", 500)), put("a", "reused", "1", text("reused", 500)), put("b", "x", "1", "x"), put("c", "dropped", "1", "dropped"), put("d", "y", "1", "y"))
			o.flush(t)
			o.change(t, remove("a", "reused")) // the body is in the file, and nothing needs it
			o.flush(t)
			o.log.Limit(1, 1<<40)
			held := func(key, body string) log.Change {
				return log.Change{Put: []log.Row{{Key: key, Bodies: []log.Body{{Sum: log.SumOf([]byte(body))}}}}}
			}
			round := 0
			o.walked = func(table string) {
				if table != "b" {
					return
				}
				round++
				again, moved := held("again", text("reused", 500)), held("moved", text("moved", 500))
				again.Table, moved.Table = "a", "d"
				if _, isReused := o.state()["a"]["again"]; isReused {
					again = put("a", "again", fmt.Sprint(round), text("reused", 500))
				}
				o.change(t, again, remove("a", "moved"), moved, drop("c"), put("e", "new", fmt.Sprint(round), fmt.Sprint("new ", round)))
			}
			if err := write(o); err != nil {
				t.Fatal(err)
			}
			o.walked = nil
			o.mustBeWhole(t, o.state())
			if round == 0 {
				t.Fatal("there was no checkpoint")
			}
			want := o.state()
			o.close(t)
			open(t, dir, log.Options{}).mustBeWhole(t, want)
		})
	}
}

// Commits go to the old file while bodies are copied, and are in the new one.
func TestWhatIsCommittedWhileAFileIsReplacedIsInTheNewOne(t *testing.T) {
	dir := t.TempDir()
	o := open(t, dir, log.Options{})
	for _, name := range names(20) {
		o.change(t, put("pods", name, "0", text(name, 500)))
	}
	o.flush(t)
	round := 0
	o.walked = func(string) {
		if round++; round <= 3 { // for how large it is, and twice for bodies; then commits wait
			o.change(t, put("pods", fmt.Sprint("new ", round), "1", text(fmt.Sprint("new ", round), 500)), remove("pods", fmt.Sprintf("pod-%02d", round)))
			before := stat(t, dir).Size()
			o.flush(t)
			if stat(t, dir).Size() <= before {
				t.Error("the commit is not in the old file")
			}
		}
	}
	if err := o.log.Rewrite(); err != nil {
		t.Fatal(err)
	}
	o.walked = nil
	if round < 4 {
		t.Fatalf("the state was asked for %d times", round)
	}
	o.mustBeWhole(t, o.state())
	want := o.state()
	o.close(t)
	open(t, dir, log.Options{}).mustBeWhole(t, want)
}

// What wears the disk out is counted: commits, new files, and old ones that are overwritten.
func TestEachByteThatIsWrittenIsCounted(t *testing.T) {
	dir := t.TempDir()
	o := open(t, dir, log.Options{})
	mustHave := func(want int64, what string) {
		t.Helper()
		if s := o.log.Stats(); s.WrittenBytes != want || s.FileBytes != stat(t, dir).Size() {
			t.Errorf("%s: got %+v; want %d written", what, s, want)
		}
	}
	mustHave(stat(t, dir).Size(), "a new file")
	o.change(t, put("pods", "a", "1", text("one", 50_000)))
	o.flush(t)
	mustHave(stat(t, dir).Size(), "a commit")
	o.change(t, drop("pods"))
	o.flush(t)
	old := stat(t, dir).Size()
	if err := o.log.Rewrite(); err != nil {
		t.Fatal(err)
	}
	mustHave(2*old+stat(t, dir).Size(), "a file that was replaced")
}
