package cache

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/test/cluster"
)

// invariant 20: after an outage there is at most one LIST at the apiserver for each
// query, however many follow it, and what followers get has no false deletion and
// nothing twice. After a short outage there is none: the watches go on.
func TestInvariant20_OneListPerViewAfterAnOutage(t *testing.T) {
	for _, c := range []struct {
		name string
		long bool // so long that the apiserver has forgotten the versions before
	}{{"short", false}, {"long", true}} {
		t.Run(c.name, func(t *testing.T) {
			h := newHub(t)
			s := newSpace(t)
			queries := []string{s.path}
			const colors = 8
			for i := range colors {
				color := fmt.Sprintf("color=%d", i)
				queries = append(queries, s.selected(color))
				s.fill(fmt.Sprintf("c%d", i), 5, color)
			}
			queries = append(queries, s.named("c0-001"), s.named("c1-001"))
			var followers []*follower
			for _, q := range queries {
				for range 2 {
					followers = append(followers, follow(t, h.node, q, protobuf))
				}
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
			if c.long {
				// Its watch cache begins anew: versions before are too old, as after
				// ten minutes of many changes.
				env.restartAPIServer(t)
			}
			mark := env.audit.mark(t)
			h.connect()
			for _, f := range followers {
				f.reaches(t, env.direct)
			}
			s.change("c1-001", "after the return")
			for _, f := range followers {
				f.reaches(t, env.direct)
				f.stop()
				f.sound(t)
				for _, name := range f.deleted {
					if !slices.Contains(gone, name) {
						t.Errorf("%s: %s was never deleted", f.path, name)
					}
				}
				lists, ends := f.counts()
				if !c.long && (lists != 1 || ends != 0) {
					t.Errorf("%s: %d lists and %d ends of watches by the client; want one list, and a watch that goes on", f.path, lists, ends)
				}
			}
			most := 0
			if c.long {
				most = 1
			}
			reads, checks := wholeReads(env.audit.since(t, mark, h.user))
			for query, n := range reads {
				if n > most {
					t.Errorf("%s was read %d times as a whole; want at most %d", query, n, most)
				}
			}
			if checks > 1 {
				t.Errorf("the apiserver was asked for its version %d times; want once at most", checks)
			}
			t.Logf("%d queries, %d of them read as a whole", len(queries), len(reads))
		})
	}
}

// invariant 20: a client whose stream breaks off between the events that follow a long
// outage, wherever that is, goes on from the version of the last that it got, and misses
// nothing.
func TestInvariant20_AClientThatBreaksOffBetweenTheEvents(t *testing.T) {
	h, s := newHub(t), newSpace(t)
	s.fill("c", 6)
	l := h.node.servedList(t, s.path, protobuf)
	w := h.node.watch(t, with(s.path, watchQuery+"&resourceVersion="+l.version), protobuf)
	h.cut()
	s.change("c-000", "changed")
	s.remove("c-001")
	s.create("new")
	s.remove("c-002")
	s.remove("c-003")
	s.create("c-003") // another of that name
	s.change("c-004", "changed")
	env.restartAPIServer(t) // it forgets what was before
	h.connect()
	events := []event{{version: l.version}, w.change(t)} // the first says that the hub has listed
	s.create("end")
	for e := w.change(t); e.name != "end"; e = w.change(t) {
		events = append(events, e)
	}
	want := map[string]string{}
	for key, version := range env.direct.get(t, s.path, protobuf).listing(t).items {
		want[baseName(key)] = version
	}
	have := map[string]string{}
	for key, version := range l.items {
		have[baseName(key)] = version
	}
	for i, last := range events {
		last.apply(have)
		again := h.node.watch(t, with(s.path, watchQuery+"&resourceVersion="+last.version), protobuf)
		after := maps.Clone(have)
		if again.expired(t, func(e event) bool { e.apply(after); return e.name == "end" }) {
			continue // it lists again
		}
		if !maps.Equal(after, want) {
			t.Errorf("a client that breaks off after event %d, %s %s at %s, ends up with this:\n%s", i, last.kind, last.name, last.version, differences(after, want))
		}
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
func TestInvariant21_ARestoreOfEtcdConverges(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		online bool // the hub sees the apiserver go and come; else the link is cut meanwhile
	}{{"seen by the hub", true}, {"behind the hub's back", false}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // each breaks an apiserver of its own
			world := newWorld(t)
			h, s := newHubIn(t, world), newSpaceIn(t, world)
			s.fill("old", 5)
			backup := t.TempDir()
			world.stopStore(t)
			if err := os.CopyFS(backup, os.DirFS(world.EtcdDir())); err != nil {
				t.Fatal(err)
			}
			world.startStore(t)
			h.awaitOnline()
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

			if !c.online {
				h.cut()
			}
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
		})
	}
}

// newWorld is a cluster for one test.
func newWorld(t *testing.T) environment {
	t.Helper()
	c, err := cluster.Start(t.Context(), cluster.Options{Dir: t.TempDir(), Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	world := environment{Cluster: c, hubBin: env.hubBin}
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
