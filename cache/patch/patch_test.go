package patch_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/patch"
	"github.com/edgehub-io/edgehub/cache/wire"
)

const (
	strategic  = "application/strategic-merge-patch+json"
	merge      = "application/merge-patch+json"
	operations = "application/json-patch+json"
)

func pod() *corev1.Pod {
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "p", Namespace: "ns", UID: "u", ResourceVersion: "10", Generation: 3,
			Labels: map[string]string{"a": "1"},
		},
		Spec: corev1.PodSpec{NodeName: "n"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue},
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
		}},
	}
}

func apply(method, contentType, body string) (*corev1.Pod, error) {
	next, err := patch.Apply(patch.Request{
		Method: method, ContentType: contentType, Body: []byte(body), Resource: schema.GroupResource{Resource: "pods"},
	}, pod())
	if err != nil {
		return nil, err
	}
	return next.(*corev1.Pod), nil
}

func TestPatches(t *testing.T) {
	for _, c := range []struct{ name, contentType, body string }{
		{"strategic, lists merged by key", strategic, `{"metadata":{"uid":"u"},"status":{"$setElementOrder/conditions":[{"type":"Ready"},{"type":"PodScheduled"}],"conditions":[{"type":"Ready","status":"False"}]}}`},
		{"strategic, with parameters in its type", strategic + "; charset=utf-8", `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`},
		{"merge, lists replaced", merge, `{"status":{"conditions":[{"type":"Ready","status":"False"},{"type":"PodScheduled","status":"True"}]}}`},
		{"operations", operations, `[{"op":"test","path":"/kind","value":"Pod"},{"op":"replace","path":"/status/conditions/0/status","value":"False"}]`},
	} {
		got, err := apply(http.MethodPatch, c.contentType, c.body)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		conditions := got.Status.Conditions
		if len(conditions) != 2 || conditions[0].Status != corev1.ConditionFalse || conditions[1].Status != corev1.ConditionTrue {
			t.Errorf("%s: conditions are %v", c.name, conditions)
		}
		if got.Status.Phase != corev1.PodRunning || got.Spec.NodeName != "n" || got.Labels["a"] != "1" || got.Kind != "Pod" {
			t.Errorf("%s: more has changed: %v", c.name, got)
		}
	}
}

func TestStrategicReplaceOfAList(t *testing.T) {
	got, err := apply(http.MethodPatch, strategic, `{"status":{"conditions":[{"type":"Ready","status":"False"},{"$patch":"replace"}]}}`)
	if err != nil || len(got.Status.Conditions) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestWhatAClientCannotChange(t *testing.T) {
	got, err := apply(http.MethodPatch, merge, `{"metadata":{"resourceVersion":"99","generation":9,"uid":null,"deletionTimestamp":"2026-01-01T00:00:00Z","labels":{"a":"2"}}}`)
	if err != nil {
		t.Fatal(err)
	}
	if got.ResourceVersion != "10" || got.Generation != 3 || got.UID != "u" || got.DeletionTimestamp != nil {
		t.Errorf("changed: %+v", got.ObjectMeta)
	}
	if got.Labels["a"] != "2" {
		t.Errorf("what it can change was not: %v", got.Labels)
	}
}

func TestPutInEitherEncoding(t *testing.T) {
	want := pod()
	want.Status.Phase = corev1.PodFailed
	for _, e := range []wire.Encoding{wire.JSON, wire.Protobuf} {
		contentType, body, err := convert.EncodeBody(e.MediaType(), want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := apply(http.MethodPut, contentType, string(body))
		if err != nil || got.Status.Phase != corev1.PodFailed {
			t.Errorf("%s: %v, %v", e, got, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	const put = http.MethodPut
	const method = http.MethodPatch
	for _, c := range []struct {
		name, method, contentType, body string
		code                            int32
		says                            string
	}{
		{"not JSON", method, strategic, `{"status"`, 400, ""},
		{"an empty patch", method, strategic, ``, 400, ""},
		{"null for a patch", method, merge, `null`, 400, "not a JSON object"},
		{"a list for a patch", method, merge, `[]`, 400, "not a JSON object"},
		{"an object for operations", method, operations, `{}`, 400, ""},
		{"an unknown directive", method, strategic, `{"status":{"conditions":[{"type":"Ready","$patch":"explode"}]}}`, 400, ""},
		{"an element without its key", method, strategic, `{"status":{"conditions":[{"status":"False"}]}}`, 400, ""},
		{"a string in place of a list", method, merge, `{"status":{"conditions":"x"}}`, 422, "conditions"},
		{"a test that fails", method, operations, `[{"op":"test","path":"/kind","value":"Node"}]`, 422, ""},
		{"a path that is not there", method, operations, `[{"op":"remove","path":"/status/x"}]`, 422, ""},
		{"an object that is none any more", method, operations, `[{"op":"replace","path":"","value":1}]`, 422, ""},
		{"copies that would fill the memory", method, operations, "[" + strings.Repeat(`{"op":"copy","from":"/metadata","path":"/metadata/x"},`, 30) + `{"op":"test","path":"/kind","value":"Pod"}]`, 413, "copies"},
		{"another name", method, merge, `{"metadata":{"name":"q"}}`, 400, "(q)"},
		{"another namespace", method, merge, `{"metadata":{"namespace":"q"}}`, 400, "(q)"},
		{"the pod that had the name before", method, strategic, `{"metadata":{"uid":"other"}}`, 409, "UID"},
		{"an older version, patched", method, strategic, `{"metadata":{"resourceVersion":"9"}}`, 409, "modified"},
		{"an older version, put", put, "application/json", `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","resourceVersion":"9"}}`, 409, "modified"},
		{"a version that is none", put, "application/json", `{"metadata":{"name":"p","resourceVersion":"x"}}`, 409, "modified"},
		{"another kind", put, "application/json", `{"kind":"Node","apiVersion":"v1","metadata":{"name":"p"}}`, 400, "Node"},
		{"a kind that nobody knows", put, "application/json", `{"kind":"Thing","apiVersion":"v1","metadata":{"name":"p"}}`, 400, "Thing"},
		{"a put that is cut short", put, "application/vnd.kubernetes.protobuf", "k8s\x00\x0a\x20", 400, ""},
		{"a put of YAML", put, "application/yaml", `kind: Pod`, 415, "application/json"},
		{"a patch in the type of a put", method, "application/json", `{}`, 415, "strategic"},
		{"a patch without a type", method, "", `{}`, 415, "strategic"},
	} {
		got, err := apply(c.method, c.contentType, c.body)
		var status apierrors.APIStatus
		if !errors.As(err, &status) || status.Status().Code != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, %v; want %d that says %q", c.name, got, err, c.code, c.says)
		}
	}
	for _, c := range []struct{ name, method, contentType string }{
		{"server-side apply", method, "application/apply-patch+yaml"},
		{"server-side apply in CBOR", method, "application/apply-patch+cbor"},
		{"a deletion", http.MethodDelete, ""},
	} {
		if got, err := apply(c.method, c.contentType, `{}`); !errors.Is(err, patch.ErrUnsupported) {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
}

func TestOlder(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"9", "10", true}, {"10", "9", false}, {"10", "10", false}, {"", "10", false}, {"10", "", false}, {"x", "10", true}, {"x", "x", false},
	} {
		if got := patch.Older(c.a, c.b); got != c.want {
			t.Errorf("Older(%q, %q) is %v", c.a, c.b, got)
		}
	}
}

func FuzzApply(f *testing.F) {
	f.Add(strategic, `{"status":{"$setElementOrder/conditions":[{"type":"Ready"}],"conditions":[{"type":"Ready","$patch":"delete"}]}}`)
	f.Add(strategic, `{"metadata":{"$retainKeys":["name"],"$deleteFromPrimitiveList/finalizers":["x"]}}`)
	f.Add(strategic, `{"status":{"conditions":[{"$patch":"replace"},[[]],null]}}`)
	f.Add(merge, `{"status":{"conditions":[null]}}`)
	f.Add(operations, `[{"op":"move","from":"/metadata/name","path":"/metadata/labels/b"},{"op":"copy","from":"","path":"/metadata/-"},{"op":"add","path":"/status/conditions/-1","value":null}]`)
	f.Add("application/json", `{"metadata":{"name":"p"}}`)
	f.Fuzz(func(t *testing.T, contentType, body string) {
		method := http.MethodPatch
		if !strings.Contains(contentType, "patch") {
			method = http.MethodPut
		}
		next, err := apply(method, contentType, body)
		var status apierrors.APIStatus
		switch {
		case err == nil:
			if _, err := convert.ToBare(wire.Protobuf, runtime.Object(next)); err != nil {
				t.Errorf("the result cannot be written: %v", err)
			}
		case !errors.As(err, &status) && !errors.Is(err, patch.ErrUnsupported):
			t.Errorf("an error that no client understands: %v", err)
		}
	})
}
