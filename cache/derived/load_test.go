package derived

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	wal "github.com/edgehub-io/edgehub/cache/log"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// noViews is a State of a log that has only tables of its own. It says what IsEmpty returns.
type noViews bool

func (noViews) Tables() []string       { return nil }
func (noViews) Rows(string) []wal.Row  { return nil }
func (noViews) Apply(wal.Change)       {}
func (noViews) Lost(error)             {}
func (noViews) GivenUp(string)         {}
func (noViews) Damaged(wal.Sum, error) {}
func (v noViews) IsEmpty() bool        { return bool(v) }

func opened(t *testing.T, dir string) *wal.Log {
	t.Helper()
	log := newLog(t, dir)
	if err := log.Open(noViews(true)); err != nil {
		t.Fatal(err)
	}
	return log
}

// closed ends a process.
func closed(t *testing.T, log *wal.Log) {
	t.Helper()
	if err := errors.Join(log.Flush(), log.Close()); err != nil {
		t.Fatal(err)
	}
}

// openLate opens a log whose folder another process has, as soon as that one ends, and returns when it is closed again.
// before and after are called around that.
func openLate(t *testing.T, dir string, replay bool, before, after func(*wal.Log)) {
	t.Helper()
	other := opened(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log, err := wal.New(dir, wal.Options{Keep: []string{TableNodePatches}, LockTimeout: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Open(noViews(replay)); !errors.Is(err, wal.ErrLocked) {
		t.Fatal(err)
	}
	before(log)
	closed(t, other)
	err = log.Run(ctx, func(_ bool, err error) {
		if err == nil {
			after(log)
			cancel()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// agent is what a CNI agent's patch of the Node is known as.
func agent(name string) NodeWriter { return NodeWriter{User: "user:" + name, Subresource: "status"} }

// wait makes patches wait, of agents in that order, each with its value.
func wait(o *Objects, value string, agents ...string) {
	for _, name := range agents {
		p := &nodePatch{}
		p.Metadata.Annotations = map[string]*string{"a": &value}
		o.mu.Lock()
		o.putWriterLocked(&NodePatch{agent(name), "m", p})
		o.mu.Unlock()
	}
}

// waiting returns what waits, as agent=value.
func waiting(o *Objects) string {
	var all []string
	for _, w := range o.Waiting() {
		all = append(all, strings.TrimPrefix(w.User, "user:")+"="+*w.Patch.Metadata.Annotations["a"])
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// report has the node write the phase of nodes with these namespaces, as if there were many.
func report(t *testing.T, o *Objects, phase string, namespaces ...string) {
	t.Helper()
	for _, namespace := range namespaces {
		q := *nodeQuery
		q.Namespace = namespace
		if _, err := o.write(&q, "status", statusPatch(fmt.Sprintf(`{"status":{"phase":%q}}`, phase)), node(t, wire.JSON, "", "7")); err != nil {
			t.Fatal(err)
		}
	}
}

// reported returns what the node reads of them, as namespace=phase.
func reported(t *testing.T, o *Objects) string {
	t.Helper()
	var all []string
	for _, k := range slices.Collect(maps.Keys(o.reports)) {
		seen, _ := o.seen(&query.Query{User: query.NodeUser, Resource: nodesResource, Namespace: k.Namespace, Name: "n"}, node(t, wire.JSON, "", "7"))
		all = append(all, fmt.Sprint(k.Namespace, "=", read[*corev1.Node](t, seen).Status.Phase))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// The keys of a file that is opened late have another salt. What memory has until then is newer. Patches that wait for the cloud
// are not lost where the file is begun anew; reports are, with the views that they lie over.
func TestWhatWasWrittenInAFileThatIsOpenedLate(t *testing.T) {
	for name, test := range map[string]struct {
		replay            bool
		waiting, reported string
	}{
		"one that is read":       {true, "a=old b=new c=new", "a=old b=new c=new"},
		"one that is begun anew": {false, "a=old b=new c=new", "b=new c=new"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			first := opened(t, dir)
			o := newObjects(t, first)
			wait(o, "old", "a", "b")
			report(t, o, "old", "a", "b")
			closed(t, first)

			check := func(when string, log *wal.Log) {
				t.Helper()
				if got := waiting(o); got != test.waiting {
					t.Errorf("%s, %s waits, want %s", when, got, test.waiting)
				}
				if got := reported(t, o); got != test.reported {
					t.Errorf("%s, %s is reported, want %s", when, got, test.reported)
				}
				if n, m := len(log.Table(TableNodePatches).Keys()), len(log.Table("statuses").Keys()); n != len(o.writers) || m != len(o.reports) {
					t.Errorf("%s, %d and %d are on disk", when, n, m)
				}
			}
			openLate(t, dir, test.replay, func(log *wal.Log) {
				o = newObjects(t, log)
				wait(o, "new", "b", "c")
				report(t, o, "new", "b", "c")
			}, func(log *wal.Log) {
				before := o.currentRevision()
				if err := o.Load(); err != nil {
					t.Error(err)
				}
				if o.currentRevision() == before {
					t.Error("watches are not told")
				}
				check("when it is open", log)
			})
			again := opened(t, dir)
			o = newObjects(t, again)
			check("after a restart", again)

			o.drop()
			for _, w := range o.Waiting() {
				o.ForgetWriter(w.NodeWriter)
			}
			closed(t, again)
			again = opened(t, dir)
			defer closed(t, again)
			test.waiting, test.reported = "", ""
			o = newObjects(t, again)
			check("when all was sent", again)
		})
	}
}
