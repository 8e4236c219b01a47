package store_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/edgehub-io/edgehub/cache/store"
)

// writeFormat sets the format version of a file, and whether it is encrypted.
func writeFormat(t *testing.T, path string, version, encrypted byte) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	body := []byte{version, encrypted}
	sum := crc32.Checksum(append([]byte("i\x00format"), body...), crc32.MakeTable(crc32.Castagnoli))
	err = db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("meta")).Put([]byte("format"), append(binary.LittleEndian.AppendUint32(nil, sum), body...))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// Version 1 stored objects without sums of their contents. A hub that goes back to an
// older version meets a newer format.
func TestAFileOfAnotherFormatIsMovedAsideAndLogged(t *testing.T) {
	for name, opts := range map[string]store.Options{"plain": {}, "encrypted": {Key: make([]byte, 32)}} {
		for _, version := range []byte{1, 77} {
			t.Run(name, func(t *testing.T) {
				dir := t.TempDir()
				s := mustOpen(t, dir, opts)
				fill(t, s, 3, 5)
				err := errors.Join(s.Snapshot(), s.Close())
				if err != nil {
					t.Fatal(err)
				}
				for _, file := range []string{"cache.db", "cache.snapshot.db"} {
					writeFormat(t, filepath.Join(dir, file), version, byte(len(opts.Key)/32))
				}
				var log bytes.Buffer
				opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
				s = mustOpen(t, dir, opts)
				if r := s.Recovery(); !errors.Is(r.Cause, store.ErrFormat) || r.Snapshot {
					t.Errorf("got recovery %+v", r)
				}
				if !strings.Contains(log.String(), "another version of the hub") || strings.Contains(log.String(), "was damaged") {
					t.Errorf("the log does not say what happened: %s", &log)
				}
				if _, err := os.Stat(filepath.Join(dir, "cache.damaged.db")); err != nil {
					t.Error(err)
				}
				if _, err := verify(s, 0); !errors.Is(err, store.ErrNotFound) {
					t.Errorf("got error %v from an empty store", err)
				}
				fill(t, s, 3, 5)
				mustHold(t, s, 5)
			})
		}
	}
}
