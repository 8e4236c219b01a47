package cache

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/edgehub-io/edgehub/test/internal/poll"
	"github.com/edgehub-io/edgehub/test/internal/smalldisk"
)

// invariant 14: a full disk does not touch clients, and when there is space again the
// hub goes on without a restart.
func TestInvariant14_AFullDisk(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	disk := smalldisk.Mount(t, 8)
	if err := os.Symlink(disk, filepath.Join(root, "cache")); err != nil {
		t.Fatal(err)
	}
	h, s := newHub(t, inDir(root)), newSpace(t)
	t.Cleanup(h.End) // before the disk is unmounted
	s.large("c", 5, 10_000)
	w := h.node.watch(t, with(s.path, watchListQuery), protobuf)
	w.initial(t)
	h.awaitDisk()

	free := fillDisk(t, disk)
	last := ""
	for range 20 {
		s.change("c-001", noise(10_000))
		last = w.expect(t, watch.Modified, "c-001").version
		h.node.servedList(t, s.path, asJSON)
		<-time.After(150 * time.Millisecond) // some commits fail meanwhile
	}
	failed, ok := h.metric("edgehub_cache_commits_total", `result="error"`)
	if !ok || failed == 0 {
		t.Errorf("%v commits failed: the disk was not full", failed)
	}
	if expired, _ := h.metric("edgehub_cache_watches_expired_total"); expired > 0 {
		t.Errorf("%v watches were ended: memory did not keep what the disk refused", expired)
	}
	h.cut() // and what is in memory is served
	version := h.node.servedList(t, s.path, protobuf).version
	if number(t, version) < number(t, last) {
		t.Errorf("the list is at %s, though an event at %s was seen", version, last)
	}
	h.node.servedList(t, s.path, asJSON)
	h.connect()

	poll.Until(t, patience, "it is tried again, though nothing is new", func() bool {
		now, _ := h.metric("edgehub_cache_commits_total", `result="error"`)
		return now > failed
	})
	free()
	h.awaitDisk()
	h.kill()
	h.cut()
	h.start()
	if l := h.node.servedList(t, s.path, protobuf); number(t, l.version) < number(t, version) {
		t.Errorf("after the disk had space again, the list on it is at %s; want at least %s", l.version, version)
	}
}
