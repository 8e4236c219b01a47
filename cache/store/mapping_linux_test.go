package store_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/store"
)

// What is looked at to overwrite what was removed is not kept in memory: a node has a hundred megabytes of it.
func TestTheMapOfTheFileIsReleased(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := mustOpen(t, dir, store.Options{})
		view := store.Change{ID: viewID(1), Op: store.Replace, Header: testHeader(1)}
		for i := range 64 {
			view.Put = append(view.Put, store.NewObject(strconv.Itoa(i), "1", bytes.Repeat([]byte{byte(i)}, 128<<10)))
		}
		mustCommit(t, s, view)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := mappedPages(t, filepath.Join(dir, "cache.db")); got > 1<<20 {
			t.Errorf("%d bytes of the file are in memory after all of its pages were looked at", got)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		s.Close()
	})
}

// mappedPages returns how many bytes of a file's memory maps are in the process's memory.
func mappedPages(t *testing.T, file string) (bytes int) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	found, counted := false, false
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		switch {
		case !strings.HasSuffix(fields[0], ":"): // of another map
			counted = strings.HasSuffix(strings.TrimSpace(line), file)
			found = found || counted
		case counted && fields[0] == "Rss:":
			kib, err := strconv.Atoi(fields[1])
			if err != nil {
				t.Fatal(err)
			}
			bytes += kib << 10
		}
	}
	if !found {
		t.Fatalf("%s is not mapped", file)
	}
	return bytes
}
