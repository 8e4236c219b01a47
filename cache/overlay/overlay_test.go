package overlay_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/overlay"
	"github.com/edgehub-io/edgehub/cache/patch"
	"github.com/edgehub-io/edgehub/cache/wire"
)

const strategic = "application/strategic-merge-patch+json"

var (
	nodeKey  = overlay.Key{Version: "v1", Resource: "nodes", Name: "n"}
	podKey   = overlay.Key{Version: "v1", Resource: "pods", Namespace: "ns", Name: "p"}
	leaseKey = overlay.Key{Group: "coordination.k8s.io", Version: "v1", Resource: "leases", Namespace: "kube-node-lease", Name: "n"}
)

func object(tb testing.TB, e wire.Encoding, apiVersion, kind string, o runtime.Object) overlay.Object {
	tb.Helper()
	bare, err := convert.ToBare(e, o)
	if err != nil {
		tb.Fatal(err)
	}
	return overlay.Object{Type: wire.TypeMeta{APIVersion: apiVersion, Kind: kind}, Encoding: e, Bare: bare}
}

func node(tb testing.TB, e wire.Encoding, uid, version string) overlay.Object {
	n := &corev1.Node{Spec: corev1.NodeSpec{PodCIDR: "10.0.0.0/24"}}
	n.Name, n.UID, n.ResourceVersion = "n", "u", version
	if uid != "" {
		n.UID = "other"
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return object(tb, e, "v1", "Node", n)
}

func read[T runtime.Object](tb testing.TB, o overlay.Object) T {
	tb.Helper()
	decoded, err := convert.FromBare(o.Encoding, o.Type, o.Bare)
	if err != nil {
		tb.Fatal(err)
	}
	return decoded.(T)
}

func statusPatch(body string) overlay.Request {
	return overlay.Request{Method: http.MethodPatch, Subresource: "status", ContentType: strategic, Body: []byte(body)}
}

func TestUpdatesOfNodeStatusAddUpAndAreRead(t *testing.T) {
	for _, e := range []wire.Encoding{wire.Protobuf, wire.JSON} {
		o := overlay.New(overlay.Options{})
		cached := node(t, e, "", "7")
		if _, ok := o.Get(nodeKey, cached); ok {
			t.Fatal("an empty overlay has an object")
		}
		if _, err := o.Apply(nodeKey, statusPatch(`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`), cached); err != nil {
			t.Fatal(err)
		}
		merged, err := o.Apply(nodeKey, statusPatch(`{"metadata":{"annotations":{"a":"b"}},"spec":{"podCIDR":"x"},"status":{"images":[{"names":["i"]}]}}`), cached)
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
		if seen, ok := o.Get(nodeKey, cached); !ok || !bytes.Equal(seen.Bare, merged.Bare) {
			t.Errorf("%s: read %v, %v", e, seen, ok)
		}
		o.Drop()
		if _, ok := o.Get(nodeKey, cached); ok || o.Len() != 0 {
			t.Error("there after Drop")
		}
	}
}

func TestAnUpdateIsVoidWhenTheCacheHasMovedOn(t *testing.T) {
	o := overlay.New(overlay.Options{})
	patch := statusPatch(`{"status":{"phase":"Pending"}}`)
	if _, err := o.Apply(nodeKey, patch, node(t, wire.Protobuf, "", "7")); err != nil {
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
		if _, ok := o.Get(nodeKey, node(t, wire.JSON, c.uid, c.version)); ok != c.want {
			t.Errorf("%s: %v", c.name, ok)
		}
	}
	merged, err := o.Apply(nodeKey, statusPatch(`{}`), node(t, wire.Protobuf, "", "8"))
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

	o := overlay.New(overlay.Options{})
	merged, err := o.Apply(podKey, statusPatch(`{"metadata":{"uid":"u","ownerReferences":null},"spec":{"nodeName":"x"},"status":{"phase":"Running","qosClass":null}}`), cached)
	if err != nil {
		t.Fatal(err)
	}
	got := read[*corev1.Pod](t, merged)
	if got.Status.Phase != corev1.PodRunning || got.Status.QOSClass != corev1.PodQOSBurstable || got.Spec.NodeName != "n" || len(got.OwnerReferences) != 1 {
		t.Errorf("%v", got)
	}
	_, err = o.Apply(podKey, statusPatch(`{"metadata":{"uid":"the one before"},"status":{"phase":"Failed"}}`), cached)
	if !apierrors.IsConflict(err) {
		t.Errorf("a patch of another pod: %v", err)
	}
	if seen, _ := o.Get(podKey, cached); read[*corev1.Pod](t, seen).Status.Phase != corev1.PodRunning {
		t.Error("a refused update has changed the object")
	}
}

func TestALeaseIsRenewedAgainAndAgain(t *testing.T) {
	l := &coordinationv1.Lease{TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}}
	l.Name, l.Namespace, l.UID, l.ResourceVersion = "n", "kube-node-lease", "u", "7"
	cached := object(t, wire.Protobuf, l.APIVersion, l.Kind, l)

	o := overlay.New(overlay.Options{})
	latest := l.DeepCopy()
	for i := range 3 {
		latest.Spec.LeaseTransitions = new(int32(i))
		contentType, body, err := convert.EncodeBody(wire.Protobuf.MediaType(), latest)
		if err != nil {
			t.Fatal(err)
		}
		merged, err := o.Apply(leaseKey, overlay.Request{Method: http.MethodPut, ContentType: contentType, Body: body}, cached)
		if err != nil {
			t.Fatalf("renewal %d: %v", i, err)
		}
		latest = read[*coordinationv1.Lease](t, merged) // as a kubelet does
		if *latest.Spec.LeaseTransitions != int32(i) || latest.ResourceVersion != "7" {
			t.Errorf("renewal %d: %v", i, latest)
		}
	}
	latest.ResourceVersion = "6"
	_, body, err := convert.EncodeBody("", latest)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Apply(leaseKey, overlay.Request{Method: http.MethodPut, Body: body}, cached); !apierrors.IsConflict(err) {
		t.Errorf("a renewal from an older version: %v", err)
	}
}

func TestWhatIsNotForTheOverlay(t *testing.T) {
	o := overlay.New(overlay.Options{})
	for _, c := range []struct {
		name        string
		key         overlay.Key
		method, sub string
	}{
		{"the spec of a node", nodeKey, http.MethodPatch, ""},
		{"the spec of a pod", podKey, http.MethodPut, ""},
		{"the ephemeral containers of a pod", podKey, http.MethodPatch, "ephemeralcontainers"},
		{"the status of a lease", leaseKey, http.MethodPatch, "status"},
		{"pods of another group", overlay.Key{Group: "metrics.k8s.io", Resource: "pods", Name: "p"}, http.MethodPatch, "status"},
		{"the deletion of a status", podKey, http.MethodDelete, "status"},
	} {
		r := overlay.Request{Method: c.method, Subresource: c.sub, ContentType: strategic, Body: []byte(`{}`)}
		if _, err := o.Apply(c.key, r, node(t, wire.JSON, "", "7")); !errors.Is(err, patch.ErrUnsupported) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if o.Len() != 0 {
		t.Error("something was kept")
	}
	if _, err := o.Apply(nodeKey, statusPatch(`{}`), overlay.Object{Encoding: wire.JSON, Bare: []byte(`{`)}); err == nil {
		t.Error("a cached object that cannot be read was updated")
	}
}

func TestTheOverlayIsBounded(t *testing.T) {
	o := overlay.New(overlay.Options{MaxObjects: 2})
	cached := node(t, wire.JSON, "", "7")
	keys := make([]overlay.Key, 3)
	for i := range keys {
		keys[i] = nodeKey
		keys[i].Namespace = fmt.Sprint(i) // as if there were three
	}
	for _, i := range []int{0, 1, 0, 2} {
		if _, err := o.Apply(keys[i], statusPatch(`{}`), cached); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []bool{true, false, true} {
		if _, ok := o.Get(keys[i], cached); ok != want {
			t.Errorf("object %d there: %v", i, ok)
		}
	}
}

func TestConcurrentUpdatesOfOneObjectAllCount(t *testing.T) {
	o := overlay.New(overlay.Options{})
	cached := node(t, wire.Protobuf, "", "7")
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if _, err := o.Apply(nodeKey, statusPatch(fmt.Sprintf(`{"metadata":{"annotations":{"a%d":"x"}}}`, i)), cached); err != nil {
				t.Error(err)
			}
			o.Get(nodeKey, cached)
		})
	}
	all.Wait()
	seen, _ := o.Get(nodeKey, cached)
	if got := read[*corev1.Node](t, seen); len(got.Annotations) != 20 {
		t.Errorf("%d of 20 updates are left", len(got.Annotations))
	}
}
