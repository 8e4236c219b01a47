package cache

import (
	"fmt"
	"net/http"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// issue 12, number 9: etcd is restored from a backup, and objects get to the same
// versions again, with other contents. A user who reads them does not change what
// another one has read before.
func TestContents_ARestoreOfEtcdThatReachesTheSameVersions(t *testing.T) {
	world := newWorld(t)
	h, s := newHubIn(t, world), newSpaceIn(t, world)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "alice"}}
	if _, err := world.client.CoreV1().ServiceAccounts(s.name).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.grant("alice", "", "configmaps", "get")
	alice := h.as(s.token("alice"))
	const objects, apart = 12, 25
	for i := range objects {
		s.create(fmt.Sprint("c-", i))
	}
	s.create("filler")
	backup := world.backUpStore(t)
	h.awaitOnline()
	for range 8 * apart { // an apiserver that starts writes, too
		s.change("filler", noise(10))
	}
	versions := make([]uint64, objects)
	for i := range objects {
		for range apart {
			s.change("filler", noise(10))
		}
		versions[i] = number(t, s.change(fmt.Sprint("c-", i), "before the restore"))
	}
	lists := reads{}
	lists.read(t, h.node, protobuf, s.path)
	lists.read(t, h.node, asJSON, s.path)

	h.cut()
	world.restoreStore(t, backup)
	same := 0
	hers := reads{}
	for i, version := range versions {
		name := fmt.Sprint("c-", i)
		for number(t, s.change("filler", noise(10))) < version-1 {
		}
		if number(t, s.change(name, "after it, and longer")) == version {
			same++
			hers[s.one(name)] = answer{}
		}
	}
	if same == 0 {
		t.Fatal("no object has reached the version that it had before: this test shows nothing")
	}
	h.connect()
	read := reads{}
	for path := range hers {
		for _, accept := range []string{protobuf, asJSON} {
			read.read(t, alice, accept, path)
		}
	}
	h.cut()
	lists.same(t, "offline", h.node)
	read.same(t, "offline", alice)
	h.stop()
	h.start()
	lists.same(t, "after a restart", h.node)
	read.same(t, "after a restart", alice)
	t.Logf("%d objects of %d reached their versions again", same, objects)
}

// backUpStore copies etcd's files, and starts everything again.
func (e environment) backUpStore(t *testing.T) (backup string) {
	t.Helper()
	backup = t.TempDir()
	e.stopStore(t)
	if err := os.CopyFS(backup, os.DirFS(e.EtcdDir())); err != nil {
		t.Fatal(err)
	}
	e.startStore(t)
	e.awaitStore(t)
	return backup
}

// restoreStore puts a backup in the place of etcd's files.
func (e environment) restoreStore(t *testing.T, backup string) {
	t.Helper()
	e.stopStore(t)
	if err := os.RemoveAll(e.EtcdDir()); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(e.EtcdDir(), os.DirFS(backup)); err != nil {
		t.Fatal(err)
	}
	e.startStore(t)
	e.awaitStore(t)
}

func (e environment) awaitStore(t *testing.T) {
	t.Helper()
	poll.Until(t, patience, "the apiserver serves what is in etcd", func() bool {
		return e.direct.try(t.Context(), request{path: "/readyz"}).status == http.StatusOK
	})
}
