package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/cache/store"
)

func writeState(t *testing.T, dir, state string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "state"), []byte(state), 0o600); err != nil {
		t.Fatal(err)
	}
}

// folderWithSnapshot returns the folder of a filled store that has taken a snapshot and was closed.
func folderWithSnapshot(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	s := mustOpen(t, dir, store.Options{})
	fill(t, s, 3, 5)
	if err := s.Snapshot(); err != nil {
		t.Fatal(err)
	}
	s.Close()
	return dir
}

func TestTheStateOfTheLastOwnerDecidesHowTheFileIsChecked(t *testing.T) {
	base := folderWithSnapshot(t)
	s := mustOpen(t, base, store.Options{})
	mustCommit(t, s, step(0, 5), step(1, 5), step(2, 5))
	s.Close()
	for _, tt := range []struct {
		name, state string
		version     int // 5 is the snapshot's
	}{
		{"closed", "", 6},
		{"killed while open", "open 1\n", 6},
		{"killed while open, many times", "open 3\n", 6},
		{"killed while it was opened", "opening 1\n", 6},
		{"ended twice while it was opened", "opening 2\n", 5},
		{"damage was met at work", "damaged 0\n", 5},
		{"a state cut short", "ope", 6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := copyFolder(t, base)
			if tt.state != "" {
				writeState(t, dir, tt.state)
			}
			s := mustOpen(t, dir, store.Options{})
			mustHold(t, s, tt.version)
			_, err := os.Stat(filepath.Join(dir, "cache.damaged.db"))
			if restored := tt.version == 5; s.Recovery().Snapshot != restored || errors.Is(err, os.ErrNotExist) == restored {
				t.Fatalf("got recovery %+v, damaged file: %v", s.Recovery(), err)
			}
			s.Close()
			if s = mustOpen(t, dir, store.Options{}); s.Recovery().Cause != nil {
				t.Fatalf("the next open finds damage again: %v", s.Recovery().Cause)
			}
		})
	}
}

// quickCheck does not find this damage; after three crashes in a row, fullCheck does.
func TestLeafDamageThatEndsTheProcessIsFoundAfterCrashesInARow(t *testing.T) {
	dir := folderWithSnapshot(t)
	file := readMain(t, dir)
	for _, leaf := range objectLeaves(t, file) {
		leaf.page[flagsAt] = 0x40
	}
	writeMain(t, dir, file)
	for crash, want := range []bool{false, false, false, true} {
		s := mustOpen(t, dir, store.Options{})
		if found := s.Recovery().Cause != nil; found != want {
			t.Fatalf("after %d crashes: found %v, want %v (%v)", crash, found, want, s.Recovery().Cause)
		}
		leaveUnclosed(t, s, dir)
	}
}

func TestEncryptionKeys(t *testing.T) {
	key, other := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	for _, tt := range []struct {
		name         string
		wrote, opens []byte
		want         error
	}{
		{"the same key", key, key, nil},
		{"another key", key, other, store.ErrKey},
		{"no key", key, nil, store.ErrKey},
		{"a key for a file without", nil, key, store.ErrKey},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			s := mustOpen(t, dir, store.Options{Key: tt.wrote})
			fill(t, s, 3, 5)
			s.Close()
			before := readMain(t, dir)
			for range 3 { // also when it is tried again and again
				s, err := store.Open(dir, store.Options{Key: tt.opens})
				if !errors.Is(err, tt.want) {
					t.Fatalf("got error %v, want %v", err, tt.want)
				}
				if err == nil {
					s.Close()
				}
			}
			if !bytes.Equal(before, readMain(t, dir)) {
				t.Fatal("the file was changed")
			}
			mustHold(t, mustOpen(t, dir, store.Options{Key: tt.wrote}), 5)
		})
	}
	if _, err := store.Open(t.TempDir(), store.Options{Key: []byte("short")}); err == nil {
		t.Fatal("a key of 5 bytes was taken")
	}
}

func TestEncryptedFileContainsNoNames(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, store.Options{Key: make([]byte, 32)})
	fill(t, s, 3, 5)
	if err := s.Commit(store.Batch{Pairs: []store.Pair{{Table: "tokens", Key: "k", Value: []byte("a secret token")}}}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	file := readMain(t, dir)
	for _, secret := range []string{"default/", "pod-", testScope, "a secret token", string(objectBytes(objectName(1), 1)[:8])} {
		if bytes.Contains(file, []byte(secret)) {
			t.Errorf("%q can be read in the file", secret)
		}
	}
}

func TestOnlyTheOwnerCanReadTheFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "cache")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, dir, store.Options{})
	fill(t, s, 3, 3)
	if err := s.Snapshot(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) < 4 {
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

func TestOneOwnerAtATime(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, store.Options{})
	fill(t, s, 3, 3)
	if _, err := store.Open(dir, store.Options{LockTimeout: 100 * time.Millisecond}); !errors.Is(err, store.ErrLocked) {
		t.Fatalf("got error %v", err)
	}
	mustHold(t, s, 3)
}

func TestSpaceOfDroppedViewsIsReusedAndFreedAtOpen(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, store.Options{})
	fill(t, s, 3, 3)
	big := store.Change{ID: viewID(99), Op: store.Replace, Header: testHeader(1)}
	for i := range 3000 {
		big.Put = append(big.Put, store.NewObject(fmt.Sprint(i), "1", make([]byte, 4000)))
	}
	size := func() int64 {
		stats, err := s.Stats()
		if err != nil {
			t.Fatal(err)
		}
		return stats.FileBytes
	}
	var once int64
	for round := range 6 {
		mustCommit(t, s, big)
		if round == 1 {
			once = size()
		}
		mustCommit(t, s, store.Change{ID: big.ID, Op: store.Drop})
	}
	if now := size(); now > once+once/4 {
		t.Fatalf("the file has grown from %d to %d bytes with what was dropped", once, now)
	}
	s.Close()
	s = mustOpen(t, dir, store.Options{})
	if info, err := os.Stat(filepath.Join(dir, "cache.db")); err != nil || info.Size() > 2<<20 || size() > 2<<20 {
		t.Fatalf("the file is %v bytes large after another open (%v)", info.Size(), err)
	}
	mustHold(t, s, 3)
	mustCommit(t, s, step(0, 3), step(1, 3), step(2, 3))
	mustHold(t, s, 4)
}
