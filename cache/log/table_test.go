package log_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/edgehub-io/edgehub/cache/log"
)

func TestValuesOfTablesOutliveARestart(t *testing.T) {
	for name, opts := range options() {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			o := open(t, dir, opts)
			tokens, events := o.log.Table("tokens"), o.log.Table("events")
			hashed := tokens.Key("ns", "account")
			long := []byte(text("an answer", 5000))
			tokens.Put(hashed, long)
			tokens.Put("small", []byte("x"))
			tokens.Put("empty", nil)
			tokens.Put("gone", long)
			tokens.Put("replaced", []byte("1"))
			tokens.Put("replaced", long)
			for i := range 100 {
				events.Put(fmt.Sprintf("%03d", i), fmt.Appendf(nil, "event %d %s", i, text("e", i)))
			}
			tokens.Delete("gone", "never there")
			check := func(when string) {
				t.Helper()
				for key, want := range map[string][]byte{hashed: long, "small": []byte("x"), "empty": {}, "replaced": long} {
					if got, ok := o.log.Table("tokens").Get(key); !ok || !bytes.Equal(got, want) {
						t.Errorf("%s, %s is %.20q, %v", when, key, got, ok)
					}
				}
				if _, ok := o.log.Table("tokens").Get("gone"); ok || slices.Contains(o.log.Table("tokens").Keys(), "gone") || !slices.Contains(o.log.Table("tokens").Keys(), "small") {
					t.Errorf("%s, what was deleted is there", when)
				}
				if o.log.Table("tokens").Key("ns", "account") != hashed || o.log.Table("others").Key("ns", "account") == hashed || o.log.Table("tokens").Key("n", "saccount") == hashed {
					t.Errorf("%s, keys are others", when)
				}
				var keys []string
				err := o.log.Table("events").Load(func(key string, value []byte) error {
					keys = append(keys, key)
					return nil
				})
				if err != nil || len(keys) != 100 || !slices.IsSorted(keys) || !slices.Equal(keys, o.log.Table("events").Keys()) {
					t.Errorf("%s, the events are %v", when, keys)
				}
			}
			check("before a commit")
			o.flush(t)
			check("after a commit")
			for _, when := range []string{"after a restart", "after a restart with a checkpoint"} {
				o.close(t)
				o = open(t, dir, opts)
				check(when)
				if err := o.log.Rewrite(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestAValueThatIsDamagedOrUnreadableIsForgotten(t *testing.T) {
	dir := t.TempDir()
	o := open(t, dir, log.Options{})
	for _, key := range []string{"a", "b", "c"} {
		o.log.Table("answers").Put(key, []byte(text("answer "+key, 1000)))
	}
	o.flush(t)
	o.close(t)
	file := readFile(t, dir)
	file[bytes.Index(file, []byte("answer b"))] ^= 1
	writeFile(t, dir, file)
	o = open(t, dir, log.Options{})
	var read []string
	err := o.log.Table("answers").Load(func(key string, _ []byte) error {
		read = append(read, key)
		if key == "c" {
			return errors.New("it cannot be decoded")
		}
		return nil
	})
	if err != nil || !slices.Equal(read, []string{"a", "c"}) {
		t.Errorf("%v were read", read)
	}
	o.flush(t)
	o.close(t)
	if got := open(t, dir, log.Options{}).log.Table("answers").Keys(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("after a restart there are %v", got)
	}
}

// What cannot be read for now is not forgotten.
func TestAValueThatCannotBeReadForNowStays(t *testing.T) {
	dir := t.TempDir()
	o := open(t, dir, log.Options{})
	o.log.Table("answers").Put("a", []byte(text("an answer", 1000)))
	o.flush(t)
	o.close(t)
	if err := o.log.Table("answers").Load(func(string, []byte) error { return nil }); !errors.Is(err, log.ErrNotOpen) {
		t.Errorf("got error %v", err)
	}
	if _, ok := o.log.Table("answers").Get("a"); ok || !slices.Contains(o.log.Table("answers").Keys(), "a") {
		t.Error("it was read, or forgotten")
	}
}

// What was deleted by a commit that is lost does not come back, nor what such a commit may have replaced.
func TestTablesAreForgottenWhereCommitsWereLost(t *testing.T) {
	dir, opts := t.TempDir(), log.Options{Keep: []string{"events"}}
	o := open(t, dir, opts)
	o.log.Table("tokens").Put("revoked", []byte("x"))
	o.log.Table("events").Put("waits", []byte("x"))
	salted := o.log.Table("tokens").Key("a")
	o.flush(t)
	o.log.Table("tokens").Delete("revoked")
	o.log.Table("tokens").Put("spoilt", []byte("x"))
	o.flush(t)
	o.log.Table("tokens").Put("since", []byte("x"))
	o.flush(t)
	o.close(t)
	file := readFile(t, dir)
	writeFile(t, dir, bytes.ReplaceAll(file, []byte("spoilt"), []byte("spoils")))
	o = open(t, dir, opts)
	if got := o.log.Table("tokens").Keys(); len(o.lost) != 1 || !slices.Equal(got, []string{"since"}) {
		t.Errorf("%d commits are lost, and %v are left", len(o.lost), got)
	}
	if o.log.Table("tokens").Key("a") != salted || !slices.Contains(o.log.Table("events").Keys(), "waits") {
		t.Error("what has to stay is forgotten, too")
	}
}
