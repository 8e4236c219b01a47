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
	"path/filepath"
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
		s.Close()
	}
	if committed[0] == 0 {
		t.Fatal("nothing was committed before the kills")
	}
	t.Logf("after %d kills at versions %v", rounds, committed)
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
				if version%20 == 19 {
					err = s.Rewrite()
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

// Invariant 13: dropping any unsynced part of the files leaves a complete earlier state, and no damage.
// Of a commit that was not synced, each sector may be missing, as may what follows the first that is.
// The index is never synced: any of its sectors may be missing, at any time.
func TestUnsyncedWritesMayBeLost(t *testing.T) {
	const sector = 512
	dir := t.TempDir()
	s := mustOpen(t, dir, store.Options{})
	fill(t, s, 3, 12)
	r := rand.New(rand.NewPCG(1, 2))
	cut := 0
	for v := 12; v < 30; v++ {
		before := readMain(t, dir)
		mustCommit(t, s, step(0, v), step(1, v), step(2, v))
		after := readMain(t, dir)
		index, err := os.ReadFile(filepath.Join(dir, "cache.index"))
		if err != nil {
			t.Fatal(err)
		}
		for round := range 6 {
			log := bytes.Clone(after)
			first := len(before) / sector
			switch whole := len(log)/sector + 1; round % 3 {
			case 0: // any sectors that it wrote are missing
				for at := first; at < whole; at++ {
					if r.IntN(3) == 0 {
						clear(log[max(at*sector, len(before)):min((at+1)*sector, len(log))])
					}
				}
			case 1: // the file is shorter
				log = log[:len(before)+r.IntN(len(after)-len(before))]
			case 2: // all is there
			}
			lost := bytes.Clone(index)
			if round%2 == 0 {
				at := r.IntN(len(lost))
				clear(lost[at:min(at+sector, len(lost))])
			}
			lost = lost[:r.IntN(len(lost))] // it is not ahead of the log
			if mustRecover(t, log, lost, v, v+1) == v {
				cut++
			}
		}
	}
	if cut == 0 {
		t.Fatal("no commit was cut short: this test shows nothing")
	}
}

// mustRecover opens files as a crash may have left them, and checks that all views are at one of two
// versions, and that nothing was damaged.
func mustRecover(t *testing.T, log, index []byte, before, after int) (version int) {
	t.Helper()
	dir := t.TempDir()
	writeMain(t, dir, log)
	if err := os.WriteFile(filepath.Join(dir, "cache.index"), index, 0o600); err != nil {
		t.Fatal(err)
	}
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
	mustCommit(t, s, step(0, version), step(1, version), step(2, version))
	mustHold(t, s, version+1)
	return version
}
