package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestNamesStayInTheFolder(t *testing.T) {
	at := time.Date(2026, 11, 22, 3, 4, 5, 0, time.FixedZone("", 3600))
	for node, want := range map[string]string{
		"edge-1.example": "edgehub-edge-1.example-20261122T020405Z.tar.gz",
		"../Edge\n1":     "edgehub-..__dge_1-20261122T020405Z.tar.gz",
	} {
		if got := bundleName(node, at); got != want {
			t.Errorf("%q: got %s, want %s", node, got, want)
		}
	}
}

func TestADiskThatIsFull(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	if n, err := copyBundle(full, bytes.NewReader(aBundle(t))); !errors.Is(err, syscall.ENOSPC) || n != 0 {
		t.Errorf("got %d bytes and %v", n, err)
	}
}

// A bundle that lacks its last byte, or any other part, is not there afterwards.
func TestOnlyAWholeBundleIsKept(t *testing.T) {
	path, whole := filepath.Join(t.TempDir(), "b.tgz"), aBundle(t)
	if _, err := saveBundle(path, strings.NewReader("<html> of what is no hub")); !errors.Is(err, gzip.ErrHeader) {
		t.Errorf("a web page is taken for a bundle: %v", err)
	}
	for n := range whole {
		if _, err := saveBundle(path, bytes.NewReader(whole[:n])); err == nil {
			t.Errorf("%d of %d bytes are taken for a bundle", n, len(whole))
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("%d of %d bytes are left: %v", n, len(whole), err)
		}
	}
	if n, err := saveBundle(path, bytes.NewReader(whole)); err != nil || n != int64(len(whole)) {
		t.Errorf("got %d bytes and %v", n, err)
	}
	if _, err := saveBundle(path, bytes.NewReader(whole)); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second time: got %v", err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, whole) {
		t.Errorf("got %q, %v", got, err)
	}
}

func aBundle(t *testing.T) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write([]byte("state")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
