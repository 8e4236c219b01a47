package spool_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	wal "github.com/edgehub-io/edgehub/cache/log"
	"github.com/edgehub-io/edgehub/cache/spool"
)

// noViews is a State of a log that has only tables of its own. It says what IsEmpty returns.
type noViews bool

func (noViews) Tables() []string       { return nil }
func (noViews) Rows(string) []wal.Row  { return nil }
func (noViews) Apply(wal.Change)       {}
func (noViews) Lost(error)             {}
func (noViews) GivenUp(string)         {}
func (noViews) Damaged(wal.Sum, error) {}
func (v noViews) IsEmpty() bool        { return bool(v) }

func opened(t *testing.T, dir string) *wal.Log {
	t.Helper()
	log := newLog(t, dir)
	if err := log.Open(noViews(true)); err != nil {
		t.Fatal(err)
	}
	return log
}

// closed ends a process.
func closed(t *testing.T, log *wal.Log) {
	t.Helper()
	if err := errors.Join(log.Flush(), log.Close()); err != nil {
		t.Fatal(err)
	}
}

// openLate opens a log whose folder another process has, as soon as that one ends, and returns when it is closed again. What
// is done meanwhile is done when it is open.
func openLate(t *testing.T, dir string, replay bool, before func(*wal.Log), meanwhile func()) {
	t.Helper()
	other := opened(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log, err := wal.New(dir, wal.Options{Keep: []string{spool.Table}, LockTimeout: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Open(noViews(replay)); !errors.Is(err, wal.ErrLocked) {
		t.Fatal(err)
	}
	before(log)
	closed(t, other)
	err = log.Run(ctx, func(replayed bool, err error) {
		if err == nil {
			if replayed != replay {
				t.Errorf("it was read: %v", replayed)
			}
			meanwhile()
			cancel()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Nobody else has the events that are in a file that is opened late, nor those that were posted until then.
func TestEventsOfAFileThatIsOpenedLate(t *testing.T) {
	for name, test := range map[string]struct {
		inFile, inMemory []spool.Request
		want             string // what is sent, with its count
		restarted        string // and what after a restart
	}{
		"nothing in the file":   {nil, []spool.Request{post("c"), post("d")}, "c1 d1", "c1 d1"},
		"nothing in memory":     {[]spool.Request{post("a"), post("b")}, nil, "a1 b1", "a1 b1"},
		"as many in either":     {[]spool.Request{post("a"), post("b")}, []spool.Request{post("c"), post("d")}, "a1 b1 c1 d1", "a1 b1 c1 d1"},
		"a series that goes on": {[]spool.Request{counted("a", 5), post("b")}, []spool.Request{post("c"), counted("a", 6)}, "b1 c1 a6", "b1 c1 a6"},
		"those of tokens, of which memory's alone can be sent": {
			[]spool.Request{byToken(post("a"), "u", "t"), post("b")}, []spool.Request{byToken(counted("a", 2), "u", "t"), post("c")}, "b1 a2 c1", "b1 c1",
		},
	} {
		for _, how := range []struct {
			name         string
			replay, sent bool
		}{{"read", true, false}, {"begun anew", false, false}, {"read, and all is sent at once", true, true}, {"begun anew, and all is sent at once", false, true}} {
			t.Run(name+"; the file is "+how.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					dir := t.TempDir()
					first := opened(t, dir)
					addAll(t, open(t, first.Table(spool.Table), spool.Options{}), test.inFile)
					closed(t, first)
					time.Sleep(2 * time.Second)
					var s *spool.Spool
					openLate(t, dir, how.replay, func(log *wal.Log) {
						s = open(t, log.Table(spool.Table), spool.Options{})
						addAll(t, s, test.inMemory)
					}, func() {
						for range 2 {
							if err := s.Load(); err != nil {
								t.Error(err)
							}
						}
						if how.sent {
							mustSend(t, s, test.want)
						}
					})
					log := opened(t, dir)
					defer closed(t, log)
					s = open(t, log.Table(spool.Table), spool.Options{})
					if how.sent {
						test.restarted = ""
					}
					mustSend(t, s, test.restarted)
					if left := log.Table(spool.Table).Keys(); len(left) > 0 {
						t.Errorf("left on disk: %v", left)
					}
				})
			})
		}
	}
}

// What two processes have posted has one file some day, wherever their clocks stood.
func TestNoEventHasTheNumberOfAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known := map[string]bool{}
		for range 3 {
			table := memory(t)
			addAll(t, open(t, table, spool.Options{}), []spool.Request{post("a"), post("b")})
			for _, key := range table.Keys() {
				known[key] = true
			}
		}
		if len(known) != 3*2 {
			t.Errorf("the numbers of three processes are %v", known)
		}
	})
}

// A process that was killed after the file was opened late has left an event twice.
func TestOfAnEventThatIsThereTwiceTheNewerOneIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := memory(t)
		for count := range 3 {
			addAll(t, spool.New(disk, spool.Options{}), []spool.Request{counted("a", count), post(fmt.Sprint("b", count))})
			time.Sleep(2 * time.Second)
		}
		if n := len(disk.Keys()); n != 3*2 {
			t.Errorf("%d are there", n)
		}
		mustSend(t, open(t, disk, spool.Options{}), "b01 b11 a2 b21")
		if left := disk.Keys(); len(left) > 0 {
			t.Errorf("left on disk: %v", left)
		}
	})
}

func addAll(t *testing.T, s *spool.Spool, all []spool.Request) {
	t.Helper()
	for _, r := range all {
		add(t, s, r, http.StatusCreated)
	}
}

// mustSend checks what is sent, by name and count.
func mustSend(t *testing.T, s *spool.Spool, want string) {
	t.Helper()
	var sent []sending
	if err := s.Replay(t.Context(), cloud(t, &sent, nil)); err != nil {
		t.Error(err)
	}
	var got []string
	for i := range sent {
		got = append(got, fmt.Sprint(sent[i].name, sent[i].event.Count))
	}
	if strings.Join(got, " ") != want {
		t.Errorf("sent %v, want %s", got, want)
	}
}
