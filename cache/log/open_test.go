package log_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/cache/log"
)

func TestEncryptionKeys(t *testing.T) {
	other := bytes.Repeat([]byte{2}, 32)
	for _, tt := range []struct {
		name         string
		wrote, opens []byte
		want         error
	}{
		{"the same key", key, key, nil},
		{"another key", key, other, log.ErrKey},
		{"no key", key, nil, log.ErrKey},
		{"a key for a file without", nil, key, log.ErrKey},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			o := open(t, dir, log.Options{Key: tt.wrote})
			o.change(t, put("pods", "a", "1", "one"))
			o.flush(t)
			want := o.state()
			o.close(t)
			before := readFile(t, dir)
			for range 3 { // also when it is tried again and again
				o, err := tryOpen(t, dir, log.Options{Key: tt.opens})
				if !errors.Is(err, tt.want) {
					t.Fatalf("got error %v, want %v", err, tt.want)
				}
				o.close(t)
			}
			if !bytes.Equal(before, readFile(t, dir)) {
				t.Fatal("the file was changed")
			}
			open(t, dir, log.Options{Key: tt.wrote}).mustBeWhole(t, want)
		})
	}
	if _, err := log.New(t.TempDir(), log.Options{Key: []byte("short")}); err == nil {
		t.Fatal("a key of 5 bytes was taken")
	}
}

func TestOnlyTheOwnerCanReadTheFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "cache")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	o := open(t, dir, log.Options{})
	o.change(t, put("pods", "a", "1", "one"))
	if err := o.log.Rewrite(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) < 2 {
		t.Fatalf("got %v: %v", entries, err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s has mode %v (%v)", e.Name(), info.Mode(), err)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder has mode %v (%v)", info.Mode(), err)
	}
}

// Who does not own the folder removes no file: the owner may be writing a new one. If it is killed then, its next start
// has no use for that.
func TestOneOwnerAtATime(t *testing.T) {
	dir := t.TempDir()
	o := open(t, dir, log.Options{})
	o.change(t, put("pods", "a", "1", "one"))
	o.flush(t)
	begun := filepath.Join(dir, "cache.new.log")
	if err := os.WriteFile(begun, []byte("a part of a log"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := tryOpen(t, dir, log.Options{LockTimeout: time.Millisecond}); !errors.Is(err, log.ErrLocked) {
		t.Fatalf("got error %v", err)
	}
	if _, err := os.Stat(begun); err != nil {
		t.Error(err)
	}
	want := o.state()
	o.mustBeWhole(t, want)
	o.close(t)
	open(t, dir, log.Options{}).mustBeWhole(t, want)
	if _, err := os.Stat(begun); err == nil {
		t.Error("what was begun is left")
	}
}

// A file of which nothing can be read is left for a person to look at, and one of another version for a hub that goes back to
// it: for a week.
func TestWhatIsNotReadIsLeftForAWeek(t *testing.T) {
	const ahead = -time.Hour // a clock was
	for name, tt := range map[string]struct {
		begins string
		cause  error
		age    time.Duration
		stays  bool
	}{
		"a log of a day ago":              {"", log.ErrCorrupt, 24 * time.Hour, true},
		"a log of eight days ago":         {"", log.ErrCorrupt, 8 * 24 * time.Hour, false},
		"a log by a clock that was ahead": {"", log.ErrCorrupt, ahead, true},
		"a log of another format":         {"edgehub\n\x04", log.ErrFormat, time.Hour, true},
		"a log that Rewrite erases":       {"", log.ErrCorrupt, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			const text = "no header of a log"
			dir, other := t.TempDir(), t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "cache.log"), append([]byte(tt.begins), bytes.Repeat([]byte(text), 100_000)...), 0o600); err != nil {
				t.Fatal(err)
			}
			o := open(t, dir, log.Options{})
			if len(o.lost) != 1 || !errors.Is(o.lost[0], tt.cause) {
				t.Fatalf("lost: %v", o.lost)
			}
			kept, then := filepath.Join(dir, "cache.damaged.log"), time.Now().Add(-tt.age)
			if err := errors.Join(os.Link(kept, filepath.Join(other, "other")), os.Chtimes(kept, then, then)); err != nil {
				t.Fatal(err)
			}
			o.change(t, put("pods", "a", "1", "one"))
			o.flush(t)
			discard := o.log.Discard
			if tt.age == 0 {
				discard = o.log.Rewrite
			}
			if err := discard(); err != nil {
				t.Fatal(err)
			}
			want := ""
			if tt.stays {
				want = "cache.damaged.log other"
			}
			if got := filesWith(t, text, dir, other); got != want {
				t.Errorf("%q have it, want %q", got, want)
			}
			state := o.state()
			o.close(t)
			open(t, dir, log.Options{}).mustBeWhole(t, state)
		})
	}
}

// A start that has set a file aside may end before it has written another one. The next one must know that there was more.
func TestAFileThatWasSetAsideIsALossUntilThereIsANewOne(t *testing.T) {
	disk := mountDisk(t, "4m")
	dir := filepath.Join(disk, "cache")
	writeFile(t, dir, []byte("no header"))
	free := fillDisk(t, disk)
	if _, err := tryOpen(t, dir, log.Options{}); !errors.Is(err, log.ErrNoSpace) {
		t.Fatalf("got error %v from a full disk", err)
	}
	free()
	o := open(t, dir, log.Options{})
	if len(o.lost) != 1 || !errors.Is(o.lost[0], log.ErrCorrupt) {
		t.Errorf("lost: %v", o.lost)
	}
	o.close(t)
	o = open(t, dir, log.Options{})
	if len(o.lost) != 0 {
		t.Errorf("the next start lost: %v", o.lost)
	}
	o.close(t)
}

func TestEraseLeavesNothing(t *testing.T) {
	dir, other := filepath.Join(t.TempDir(), "cache"), t.TempDir()
	o := open(t, dir, log.Options{})
	o.change(t, put("secrets", "s", "1", "a secret"))
	o.flush(t)
	if err := log.Erase(dir); !errors.Is(err, log.ErrLocked) {
		t.Errorf("while it is in use: %v", err)
	}
	o.close(t)
	if err := os.Link(filepath.Join(dir, "cache.log"), filepath.Join(other, "other")); err != nil {
		t.Fatal(err)
	}
	if err := log.Erase(dir); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 || entries[0].Name() != "lock" || filesWith(t, "a secret", other) != "" {
		t.Errorf("%v are left (%v)", entries, err)
	}
	if err := log.Erase(filepath.Join(dir, "never there")); err != nil {
		t.Error(err)
	}
}
