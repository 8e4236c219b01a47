package derived

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/convert"
	wal "github.com/edgehub-io/edgehub/cache/log"
	"github.com/edgehub-io/edgehub/cache/patch"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

const strategic = "application/strategic-merge-patch+json"

var (
	nodeQuery  = &query.Query{User: query.NodeUser, Resource: nodesResource, Name: "n"}
	podOfNode  = podQuery("ns", "p")
	leaseQuery = &query.Query{
		User: query.NodeUser, Resource: coordinationv1.SchemeGroupVersion.WithResource("leases"), Namespace: "kube-node-lease", Name: "n",
	}
)

// newLog returns a log, which is not open. It outlives what is opened on it, as a disk does.
func newLog(tb testing.TB, dir string) *wal.Log {
	tb.Helper()
	log, err := wal.New(dir, wal.Options{Keep: []string{TableNodePatches}, LockTimeout: time.Millisecond})
	if err != nil {
		tb.Fatal(err)
	}
	return log
}

// newObjects has no views.
func newObjects(tb testing.TB, file *wal.Log) *Objects {
	tb.Helper()
	o := New(Options{Views: view.New(view.Options{}), File: file})
	if err := o.Load(); err != nil {
		tb.Fatal(err)
	}
	return o
}

// seen is what the node reads, and whether that differs from what is cached.
func (o *Objects) seen(q *query.Query, cached view.Object) (view.Object, bool) {
	laid, _ := o.Get(q, cached)
	return laid, !bytes.Equal(laid.Bare, cached.Bare)
}

func object(tb testing.TB, e wire.Encoding, apiVersion, kind string, o runtime.Object) view.Object {
	tb.Helper()
	bare, err := convert.ToBare(e, o)
	if err != nil {
		tb.Fatal(err)
	}
	return view.Object{Type: wire.TypeMeta{APIVersion: apiVersion, Kind: kind}, Repr: wire.Representation{Encoding: e}, Bare: bare}
}

func node(tb testing.TB, e wire.Encoding, uid, version string) view.Object {
	n := &corev1.Node{Spec: corev1.NodeSpec{PodCIDR: "10.0.0.0/24"}}
	n.Name, n.UID, n.ResourceVersion = "n", "u", version
	if uid != "" {
		n.UID = "other"
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return object(tb, e, "v1", "Node", n)
}

func read[T runtime.Object](tb testing.TB, o view.Object) T {
	tb.Helper()
	decoded, err := decode[T](o)
	if err != nil {
		tb.Fatal(err)
	}
	return decoded
}

func statusPatch(body string) patch.Request {
	return patch.Request{Method: http.MethodPatch, ContentType: strategic, Body: []byte(body)}
}

func TestUpdatesOfNodeStatusAddUpAndAreRead(t *testing.T) {
	for _, e := range []wire.Encoding{wire.Protobuf, wire.JSON} {
		o := newObjects(t, newLog(t, ""))
		cached := node(t, e, "", "7")
		if _, ok := o.seen(nodeQuery, cached); ok {
			t.Fatal("an object without reports differs")
		}
		if _, err := o.write(nodeQuery, "status", statusPatch(`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`), cached); err != nil {
			t.Fatal(err)
		}
		merged, err := o.write(nodeQuery, "status", statusPatch(`{"metadata":{"annotations":{"a":"b"}},"spec":{"podCIDR":"x"},"status":{"images":[{"names":["i"]}]}}`), cached)
		if err != nil {
			t.Fatal(err)
		}
		got := read[*corev1.Node](t, merged)
		if got.Status.Conditions[0].Status != corev1.ConditionFalse || len(got.Status.Images) != 1 || got.Annotations["a"] != "b" {
			t.Errorf("%s: not both updates: %v", e, got)
		}
		if got.ResourceVersion != "7" || got.Spec.PodCIDR != "10.0.0.0/24" {
			t.Errorf("%s: what a status update must not change: %v", e, got)
		}
		if seen, ok := o.seen(nodeQuery, cached); !ok || !bytes.Equal(seen.Bare, merged.Bare) {
			t.Errorf("%s: read %v, %v", e, seen, ok)
		}
		o.drop()
		if _, ok := o.seen(nodeQuery, cached); ok || len(o.reports) != 0 {
			t.Error("there after Drop")
		}
	}
}

func TestAnUpdateIsVoidWhenTheCacheHasMovedOn(t *testing.T) {
	o := newObjects(t, newLog(t, ""))
	report := statusPatch(`{"status":{"phase":"Pending"}}`)
	if _, err := o.write(nodeQuery, "status", report, node(t, wire.Protobuf, "", "7")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name         string
		uid, version string
		want         bool
	}{
		{"the same version in another representation", "", "7", true},
		{"an older one in another representation", "", "6", true},
		{"a newer version", "", "8", false},
		{"another object of this name", "other", "7", false},
	} {
		if _, ok := o.seen(nodeQuery, node(t, wire.JSON, c.uid, c.version)); ok != c.want {
			t.Errorf("%s: %v", c.name, ok)
		}
	}
	merged, err := o.write(nodeQuery, "status", statusPatch(`{}`), node(t, wire.Protobuf, "", "8"))
	if err != nil {
		t.Fatal(err)
	}
	if got := read[*corev1.Node](t, merged); got.Status.Phase != "" || got.ResourceVersion != "8" {
		t.Errorf("an update of a version before shows through: %v", got)
	}
}

func TestPodStatus(t *testing.T) {
	p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}}
	p.Name, p.Namespace, p.UID, p.ResourceVersion = "p", "ns", "u", "7"
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "d"}}
	p.Status.QOSClass = corev1.PodQOSBurstable
	cached := object(t, wire.Protobuf, "v1", "Pod", p)

	o := newObjects(t, newLog(t, ""))
	merged, err := o.write(podOfNode, "status", statusPatch(`{"metadata":{"uid":"u","ownerReferences":null},"spec":{"nodeName":"x"},"status":{"phase":"Running","qosClass":null}}`), cached)
	if err != nil {
		t.Fatal(err)
	}
	got := read[*corev1.Pod](t, merged)
	if got.Status.Phase != corev1.PodRunning || got.Status.QOSClass != corev1.PodQOSBurstable || got.Spec.NodeName != "n" || len(got.OwnerReferences) != 1 {
		t.Errorf("%v", got)
	}
	_, err = o.write(podOfNode, "status", statusPatch(`{"metadata":{"uid":"the one before"},"status":{"phase":"Failed"}}`), cached)
	if !apierrors.IsConflict(err) {
		t.Errorf("a patch of another pod: %v", err)
	}
	if seen, _ := o.seen(podOfNode, cached); read[*corev1.Pod](t, seen).Status.Phase != corev1.PodRunning {
		t.Error("a refused update has changed the object")
	}
}

func TestALeaseIsRenewedAgainAndAgain(t *testing.T) {
	l := &coordinationv1.Lease{TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}}
	l.Name, l.Namespace, l.UID, l.ResourceVersion = "n", "kube-node-lease", "u", "7"
	cached := object(t, wire.Protobuf, l.APIVersion, l.Kind, l)

	o := newObjects(t, newLog(t, ""))
	latest := l.DeepCopy()
	for i := range 3 {
		latest.Spec.LeaseTransitions = new(int32(i))
		contentType, body, err := convert.EncodeBody(wire.Protobuf.MediaType(), latest)
		if err != nil {
			t.Fatal(err)
		}
		merged, err := o.write(leaseQuery, "", patch.Request{Method: http.MethodPut, ContentType: contentType, Body: body}, cached)
		if err != nil {
			t.Fatalf("renewal %d: %v", i, err)
		}
		latest = read[*coordinationv1.Lease](t, merged) // as a kubelet does
		if *latest.Spec.LeaseTransitions != int32(i) || latest.ResourceVersion != "7" {
			t.Errorf("renewal %d: %v", i, latest)
		}
	}
}

func TestWhatIsNotReported(t *testing.T) {
	o := newObjects(t, newLog(t, ""))
	for _, c := range []struct {
		name        string
		query       *query.Query
		method, sub string
	}{
		{"the spec of a node", nodeQuery, http.MethodPatch, ""},
		{"the spec of a pod", podOfNode, http.MethodPut, ""},
		{"the ephemeral containers of a pod", podOfNode, http.MethodPatch, "ephemeralcontainers"},
		{"the status of a lease", leaseQuery, http.MethodPatch, "status"},
		{"pods of another group", &query.Query{Resource: schema.GroupVersionResource{Group: "metrics.k8s.io", Resource: "pods"}, Name: "p"}, http.MethodPatch, "status"},
		{"the deletion of a status", podOfNode, http.MethodDelete, "status"},
	} {
		r := patch.Request{Method: c.method, ContentType: strategic, Body: []byte(`{}`)}
		if _, err := o.write(c.query, c.sub, r, node(t, wire.JSON, "", "7")); !errors.Is(err, patch.ErrUnsupported) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if len(o.reports) != 0 {
		t.Error("something was kept")
	}
	if _, err := o.write(nodeQuery, "status", statusPatch(`{}`), view.Object{Repr: wire.Representation{Encoding: wire.JSON}, Bare: []byte(`{`)}); err == nil {
		t.Error("a cached object that cannot be read was updated")
	}
}

func TestReportsAreBounded(t *testing.T) {
	o := newObjects(t, newLog(t, ""))
	cached := node(t, wire.JSON, "", "7")
	write := func(n int) *query.Query {
		q := *nodeQuery
		q.Namespace = fmt.Sprint(n) // as if there were many
		if _, err := o.write(&q, "status", statusPatch(`{"status":{"phase":"Pending"}}`), cached); err != nil {
			t.Fatal(err)
		}
		return &q
	}
	again, oldest := write(0), write(1)
	for n := range maxReports - 2 {
		write(n + 2)
	}
	write(0)
	newest := write(maxReports)
	for q, want := range map[*query.Query]bool{again: true, oldest: false, newest: true} {
		if _, ok := o.seen(q, cached); ok != want {
			t.Errorf("object %s there: %v", q.Namespace, ok)
		}
	}
	if o = newObjects(t, o.File); len(o.reports) != maxReports {
		t.Errorf("%d reports are left after a restart", len(o.reports))
	}
}

func TestConcurrentUpdatesOfOneObjectAllCount(t *testing.T) {
	o := newObjects(t, newLog(t, ""))
	cached := node(t, wire.Protobuf, "", "7")
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if _, err := o.write(nodeQuery, "status", statusPatch(fmt.Sprintf(`{"metadata":{"annotations":{"a%d":"x"}}}`, i)), cached); err != nil {
				t.Error(err)
			}
			o.seen(nodeQuery, cached)
		})
	}
	all.Wait()
	seen, _ := o.seen(nodeQuery, cached)
	if got := read[*corev1.Node](t, seen); len(got.Annotations) != 20 {
		t.Errorf("%d of 20 updates are left", len(got.Annotations))
	}
}
