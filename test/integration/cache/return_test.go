package cache

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/audit"
)

// invariant 20: after a short outage the watches go on, and nothing is listed.
func TestInvariant20_WatchesGoOnAfterAShortOutage(t *testing.T) {
	t.Parallel()
	afterAnOutage(t, env, func() {}, 0)
}

// Two tests have an apiserver and etcd of their own, which are stopped and started. Their hubs do not see it.
func TestInvariants20And21_AnApiserverThatForgetsOrGoesBack(t *testing.T) {
	t.Parallel()
	world := newWorld(t)
	old := newSpaceIn(t, world)
	old.fill("old", 5)
	backup := t.TempDir()
	t.Run("one list by each client after a long outage", func(t *testing.T) {
		// invariant 20: the watch cache begins anew, so that versions before are too old, as after ten minutes of many
		// changes. There is at most one LIST at the apiserver by each of the two clients of a query, and none by the hub.
		afterAnOutage(t, world, func() {
			world.stopStore(t)
			if err := os.CopyFS(backup, os.DirFS(world.EtcdDir())); err != nil {
				t.Fatal(err)
			}
			world.startStore(t)
		}, 2)
	})
	t.Run("a restore of etcd converges", func(t *testing.T) { restored(t, world, old, backup) })
}

// afterAnOutage has clients follow many queries over an outage, at whose end each may be read as a whole so often. What
// they get has no false deletion, and nothing twice.
func afterAnOutage(t *testing.T, e environment, end func(), most int) {
	t.Helper()
	h, s := newHubIn(t, e), newSpaceIn(t, e)
	queries := []string{s.path, s.named("c0-001"), s.named("c1-001")}
	const colors = 4
	for i := range colors {
		color := fmt.Sprintf("color=%d", i)
		queries = append(queries, s.selected(color))
		s.fill(fmt.Sprintf("c%d", i), 4, color)
	}
	var followers []*follower
	mark := e.audit.mark(t)
	for _, q := range queries {
		for range 2 {
			followers = append(followers, follow(t, h.node, q, protobuf))
		}
	}
	if reads, _ := wholeReads(e.audit.since(t, mark, h.user)); reads[s.path+"||"] != 2 {
		t.Fatalf("the apiserver counts %v; want two of %s: this test shows nothing", reads, s.path)
	}
	h.cut()
	gone := []string{}
	for i := range colors {
		s.change(fmt.Sprintf("c%d-000", i), "changed while the cloud was away")
		s.remove(fmt.Sprintf("c%d-002", i))
		s.create(fmt.Sprintf("c%d-new", i), fmt.Sprintf("color=%d", i))
		s.remove(fmt.Sprintf("c%d-003", i))
		s.create(fmt.Sprintf("c%d-003", i), fmt.Sprintf("color=%d", i)) // another of that name
		gone = append(gone, fmt.Sprintf("c%d-002", i), fmt.Sprintf("c%d-003", i))
	}
	end()
	mark = e.audit.mark(t)
	h.connect()
	for _, f := range followers {
		f.reaches(t, e.direct)
	}
	s.change("c1-001", "after the return")
	for _, f := range followers {
		f.reaches(t, e.direct)
		f.stop()
		f.sound(t)
		for _, name := range f.deleted {
			if !slices.Contains(gone, name) {
				t.Errorf("%s: %s was never deleted", f.path, name)
			}
		}
		lists, ends := f.counts()
		if most == 0 && (lists != 1 || ends != 0) {
			t.Errorf("%s: %d lists and %d ends of watches by the client; want one list, and a watch that goes on", f.path, lists, ends)
		}
	}
	reads, checks := wholeReads(e.audit.since(t, mark, h.user))
	for query, n := range reads {
		if n > most {
			t.Errorf("%s was read %d times as a whole; want at most %d", query, n, most)
		}
	}
	asked := 1
	if most > 0 { // of two clients of a query one may watch from below what the other has listed since, which looks like a restore
		asked = 2
	}
	if checks > asked {
		t.Errorf("the apiserver was asked for its version %d times; want %d at most", checks, asked)
	}
}

// invariant 20: the same where nobody watches any more, and where the hub was started
// again during the outage: what nobody asks for is not listed.
func TestInvariant20_NothingIsListedForNobody(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.fill("c", 3)
	h.node.servedList(t, s.path, protobuf)
	h.stop()
	h.cut()
	h.start()
	h.node.servedList(t, s.path, protobuf)
	mark := env.audit.mark(t)
	h.connect()
	s.change("c-001", "changed")
	h.node.get(t, s.one("c-001"), protobuf)
	if reads, _ := wholeReads(env.audit.since(t, mark, h.user)); len(reads) != 0 {
		t.Errorf("read as a whole: %v", reads)
	}
}

// invariant 21: after a restore of etcd, with versions that go backwards, what clients
// have through the hub converges to what the apiserver has, offline reads included.
func restored(t *testing.T, world environment, s *space, backup string) {
	t.Helper()
	h := newHubIn(t, world)
	followers := []*follower{follow(t, h.node, s.path, protobuf), follow(t, h.node, s.named("old-001"), asJSON), follow(t, h.node, s.path, protobuf)}
	h.node.get(t, s.one("old-002"), protobuf)
	for i := range 30 { // the version goes far ahead of the backup
		s.change("old-001", fmt.Sprint("lost ", i))
	}
	s.create("lost")
	s.remove("old-003")
	s.change("old-002", "lost")
	h.node.get(t, s.one("old-002"), protobuf)
	h.node.get(t, s.one("old-001"), protobuf) // and not again after the restore
	own := "/api/v1/namespaces/" + s.name     // is in no list
	labelled := h.node.do(t, request{method: http.MethodPatch, path: own, accept: protobuf,
		contentType: "application/merge-patch+json", body: []byte(`{"metadata":{"labels":{"lost":"yes"}}}`)})
	if labelled.status != http.StatusOK {
		t.Fatal(labelled)
	}
	for _, f := range followers {
		f.reaches(t, world.direct)
	}
	ahead := h.node.get(t, s.path, protobuf).listing(t).version

	h.cut() // the hub does not see the apiserver go and come
	world.stopStore(t)
	if err := os.RemoveAll(world.EtcdDir()); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(world.EtcdDir(), os.DirFS(backup)); err != nil {
		t.Fatal(err)
	}
	world.startStore(t)
	h.connect()
	back := world.direct.get(t, s.path, protobuf).listing(t).version
	if number(t, back) >= number(t, ahead) {
		t.Fatalf("the apiserver is at %s, not before %s", back, ahead)
	}
	for _, f := range followers {
		f.reaches(t, world.direct)
	}
	s.change("old-004", "after the restore")
	s.remove("old-000")
	for _, f := range followers {
		f.reaches(t, world.direct)
	}
	want := world.direct.get(t, s.path, protobuf)
	object, namespace := h.node.get(t, s.one("old-002"), protobuf), h.node.get(t, own, protobuf)
	unread := world.direct.get(t, s.one("old-001"), protobuf)
	h.cut()
	for path, want := range map[string]answer{own: namespace, s.one("old-001"): unread} {
		if a := h.node.get(t, path, protobuf); !bytes.Equal(a.body, want.body) {
			t.Errorf("offline, GET %s says %v", path, a)
		}
	}
	got := h.node.get(t, s.path, protobuf).listing(t)
	if w := want.listing(t); differences(got.items, w.items) != differences(w.items, w.items) {
		t.Errorf("offline, after the restore: %s", differences(got.items, w.items))
	}
	if a := h.node.get(t, s.one("old-002"), protobuf); !bytes.Equal(a.body, object.body) {
		t.Errorf("offline, GET says %v", a)
	}
	h.node.refused(t, request{path: s.one("lost"), accept: protobuf}, http.StatusNotFound)
}

// newWorld is a cluster for one test.
func newWorld(t *testing.T) environment {
	t.Helper()
	log, err := audit.New(t.TempDir(), auditRules)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.Start(t.Context(), cluster.Options{Dir: t.TempDir(), Log: t.Output(), APIServerArgs: log.Args()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	world := environment{Cluster: c, hubBin: env.hubBin, audit: auditLog{log}}
	if world.client, err = kubernetes.NewForConfig(c.AdminConfig()); err != nil {
		t.Fatal(err)
	}
	if world.direct, err = newDirectClient(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(world.direct.close)
	return world
}

// stopStore stops the apiserver and etcd.
func (e environment) stopStore(t *testing.T) {
	t.Helper()
	for _, p := range []*cluster.Process{e.APIServer(), e.Etcd()} {
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
	}
}

func (e environment) startStore(t *testing.T) {
	t.Helper()
	for _, p := range []*cluster.Process{e.Etcd(), e.APIServer()} {
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
