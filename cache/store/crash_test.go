package store_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/cache/store"
)

// crashFolder is set in the environment of the test binary that is killed.
const crashFolder = "STORE_TEST_CRASH_FOLDER"

// Invariant 12: after kill -9 at any instant, each view equals a complete earlier state, and no
// commit is lost.
func TestKilledAtAnyInstant(t *testing.T) {
	rounds := 50
	if testing.Short() {
		rounds = 10
	}
	dir := t.TempDir()
	committed := [testViews]int{}
	instants := rand.New(rand.NewPCG(12, 1))
	for round := range rounds {
		runAndKill(t, dir, time.Duration(1+instants.IntN(120))*time.Millisecond, &committed)
		s := mustOpen(t, dir, store.Options{})
		if r := s.Recovery(); r.Cause != nil {
			t.Fatalf("round %d: a kill damaged the file: %v", round, r.Cause)
		}
		for view := range testViews {
			version, err := verify(s, view)
			if errors.Is(err, store.ErrNotFound) && committed[view] == 0 {
				continue
			}
			if err != nil || version < committed[view] {
				t.Fatalf("round %d: view %d is at %d, %d was committed (%v)", round, view, version, committed[view], err)
			}
		}
		if err := s.Check(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if round%3 == 0 { // and sometimes one crash follows the other
			s.Close()
		} else {
			leaveUnclosed(t, s, dir)
		}
	}
	if committed[0] == 0 {
		t.Fatal("nothing was committed before the kills")
	}
	t.Logf("after %d kills at versions %v", rounds, committed)
}

// leaveUnclosed leaves the folder as a killed process would.
func leaveUnclosed(t *testing.T, s *store.Store, dir string) {
	t.Helper()
	path := dir + "/state"
	state, err := os.ReadFile(path)
	s.Close()
	if err == nil {
		err = os.WriteFile(path, state, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// runAndKill runs a process that commits for a while, and records the commits that it reports.
func runAndKill(t *testing.T, dir string, after time.Duration, committed *[testViews]int) {
	t.Helper()
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), crashFolder+"="+dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if lines.Scan() { // it is about to open
		defer time.AfterFunc(after, kill).Stop()
	}
	for lines.Scan() {
		var view, version int
		if _, err := fmt.Sscanf(lines.Text(), "%d %d.", &view, &version); err == nil {
			committed[view] = version
		}
	}
	cmd.Wait() //nolint:errcheck // it was killed
	if stderr.Len() > 0 {
		t.Fatalf("the process that commits: %s", stderr.String())
	}
}

// commitUntilKilled is that process.
func commitUntilKilled(dir string, out io.Writer) error {
	fmt.Fprintln(out, "opening")
	s, err := store.Open(dir, store.Options{})
	if err != nil {
		return err
	}
	var lines sync.Mutex
	failed := make(chan error)
	for view := range testViews {
		go func() {
			version, err := verify(s, view)
			if errors.Is(err, store.ErrNotFound) {
				err = s.Commit(store.Batch{Changes: []store.Change{whole(view, 1)}})
				version = 1
			}
			for ; err == nil; version++ {
				lines.Lock()
				fmt.Fprintf(out, "%d %d.\n", view, version)
				lines.Unlock()
				switch {
				case version%50 == 49:
					err = s.Snapshot()
				case version%10 == 9:
					err = s.Overwrite()
				}
				if err == nil {
					err = s.Commit(store.Batch{Changes: []store.Change{step(view, version)}})
				}
			}
			failed <- err
		}()
	}
	return <-failed
}

// Invariant 13: dropping any unsynced suffix of the file leaves a complete
// earlier state. bbolt writes pages, syncs, and then writes the meta page that
// makes them the state: before the first sync any of the pages may be missing,
// before the second the meta page may be torn. When free pages are overwritten, any of them may
// be missing.
func TestUnsyncedWritesMayBeLost(t *testing.T) {
	const page = 4096
	dir := t.TempDir()
	s := mustOpen(t, dir, store.Options{})
	fill(t, s, 3, 12)
	r := rand.New(rand.NewPCG(1, 2))
	lost := 0
	for v := 12; v < 30; v++ {
		before := readMain(t, dir)
		mustCommit(t, s, step(0, v), step(1, v), step(2, v))
		after := readMain(t, dir)
		// The file grows, by zeros and synced, before pages are written.
		before = append(before, make([]byte, len(after)-len(before))...)

		for range 4 {
			state := bytes.Clone(before)
			suffix := r.IntN(len(after) / page)
			for at := 2 * page; at < len(after); at += page {
				// Either all pages after some page are missing, or any pages.
				if lost%2 == 0 && at/page < suffix || lost%2 == 1 && r.IntN(2) == 0 {
					copy(state[at:], after[at:at+page])
				}
			}
			mustRecover(t, state, v, v)
			lost++
		}
		for range 2 {
			state := bytes.Clone(after)
			copy(state[:2*page], before[:2*page])
			meta := v % 2 * page // one of the two is the one that changes
			torn := r.IntN(128)
			for _, at := range []int{meta, page - meta} {
				if !bytes.Equal(before[at:at+page], after[at:at+page]) {
					copy(state[at:at+torn], after[at:at+torn])
				}
			}
			mustRecover(t, state, v, v+1)
		}
		if err := s.Overwrite(); err != nil {
			t.Fatal(err)
		}
		overwritten := readMain(t, dir)
		if bytes.Equal(after, overwritten) {
			t.Fatal("no free page was overwritten: this test shows nothing")
		}
		for range 4 {
			state := bytes.Clone(after)
			for at := 0; at < len(after); at += page {
				if r.IntN(2) == 0 {
					copy(state[at:], overwritten[at:at+page])
				}
			}
			mustRecover(t, state, v+1, v+1)
		}
	}
}

// mustRecover opens a file as a crash may have left it, and checks that all views are at one of two
// versions, and that nothing was damaged.
func mustRecover(t *testing.T, file []byte, before, after int) {
	t.Helper()
	dir := t.TempDir()
	writeMain(t, dir, file)
	s := mustOpen(t, dir, store.Options{})
	defer s.Close()
	if r := s.Recovery(); r.Cause != nil {
		t.Fatalf("a crash within a commit counts as damage: %v", r.Cause)
	}
	version, err := verify(s, 0)
	if err != nil || version != before && version != after {
		t.Fatalf("view 0 is at version %d, want %d or %d (%v)", version, before, after, err)
	}
	mustHold(t, s, version)
}
