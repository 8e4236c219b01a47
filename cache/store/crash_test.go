package store_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/edgehub-io/edgehub/cache/store"
)

// Invariants 12 and 13: dropping any unsynced part of the files, as a kill in the middle of a write or a power cut
// does, leaves a complete earlier state, and no damage.
// Of a commit that was not synced, each sector may be missing, as may what follows the first that is.
// The index is never synced: any of its sectors may be missing, at any time.
func TestUnsyncedWritesMayBeLost(t *testing.T) {
	const sector = 512
	dir := t.TempDir()
	s := mustOpen(t, dir, store.Options{})
	fill(t, s, 3, 12)
	r := rand.New(rand.NewPCG(1, 2))
	cut := 0
	for v := 12; v < 18; v++ {
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
