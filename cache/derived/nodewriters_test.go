package derived

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cache/patch"
)

const merge = "application/merge-patch+json"

// nodeOf is a Node with annotations that a field manager has written.
func nodeOf(uid, manager string, annotations ...string) *corev1.Node {
	n := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
	n.UID = types.UID(uid)
	var fields []string
	for _, name := range annotations {
		fields = append(fields, fmt.Sprintf(`"f:%s":{}`, name))
	}
	n.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "another", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{".":{},"f:x/theirs":{}}}}`)},
		{Manager: manager, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{".":{},` + strings.Join(fields, ",") + `}}}`)},
	}
	return n
}

// annotate is a patch of one annotation.
func annotate(t *testing.T, name, value string) *nodePatch {
	t.Helper()
	p, err := parseNodePatch(strategic, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, name, value))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// learn has an apiserver let a patch pass; nil is one that is not taken offline.
func (o *Objects) learn(w NodeWriter, manager string, written *nodePatch, n *corev1.Node) {
	r := patch.Request{}
	if written != nil {
		r = written.Request()
	}
	body, _ := json.Marshal(n)
	o.LearnWriter(w, manager, r, "application/json", body)
}

func (o *Objects) add(w NodeWriter, uid string, p *nodePatch) error {
	known, err := o.allowedLocked(w, uid, p)
	if err == nil {
		o.addPatchLocked(known, p)
	}
	return err
}

// waiting describes what waits.
func waiting(p *Objects) (all []string) {
	for _, one := range p.Waiting() {
		all = append(all, one.User+" "+one.Manager+" "+string(one.Patch.body()))
	}
	slices.Sort(all)
	return all
}

func TestWhatIsAPatchOfAnnotations(t *testing.T) {
	for _, c := range []struct {
		name, contentType, body string
		want                    bool
	}{
		{"an annotation", strategic, `{"metadata":{"annotations":{"a":"b"}}}`, true},
		{"its deletion", merge, `{"metadata":{"annotations":{"a":null}}}`, true},
		{"with a charset", merge + "; charset=utf-8", `{"metadata":{"annotations":{"a":"b"}}}`, true},
		{"the condition", strategic, `{"status":{"conditions":[{"type":"NetworkUnavailable","status":"False"}]}}`, true},
		{"nothing", strategic, `{}`, false},
		{"all annotations", strategic, `{"metadata":{"annotations":null}}`, false},
		{"annotations that are replaced", strategic, `{"metadata":{"annotations":{"$patch":"replace","a":"b"}},"x":1}`, false},
		{"labels in another case", strategic, `{"metadata":{"annotations":{"a":"b"}},"METADATA":{"labels":{"a":"b"}}}`, false},
		{"a finalizer", strategic, `{"metadata":{"annotations":{"a":"b"},"finalizers":["a/b"]}}`, false},
		{"two objects", strategic, `{"metadata":{"annotations":{"a":"b"}}}{}`, false},
		{"no object", strategic, `[]`, false},
		{"two conditions", strategic, `{"status":{"conditions":[{"type":"NetworkUnavailable"},{"type":"Ready"}]}}`, false},
		{"server-side apply", "application/apply-patch+yaml", `{"metadata":{"annotations":{"a":"b"}}}`, false},
		{"no type", "", `{"metadata":{"annotations":{"a":"b"}}}`, false},
	} {
		if p, err := parseNodePatch(c.contentType, []byte(c.body)); (err == nil) != c.want {
			t.Errorf("%s: %v, %v", c.name, p, err)
		}
	}
}

func TestKubernetesOwnAnnotationsAreNobodysElse(t *testing.T) {
	n := nodeOf("u", "m", "kubernetes.io/a", "node.alpha.kubernetes.io/ttl", "k8s.io/a", "a.k8s.io/b", "mykubernetes.io/a", "plain", "k8s.ovn.org/a")
	if got, want := writtenBy("m", n), []string{"annotation:k8s.ovn.org/a", "annotation:mykubernetes.io/a", "annotation:plain"}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

// A directive is an annotation's name that nobody can have written.
func TestADirectiveIsNoAnnotation(t *testing.T) {
	p := newObjects(t, memory{})
	w := NodeWriter{User: "a", Subresource: "status"}
	p.learn(w, "m", nil, nodeOf("u", "m", "f/a"))
	if _, err := p.allowedLocked(w, "u", annotate(t, "$patch", "replace")); err == nil {
		t.Error("allowed")
	}
}

func TestPatchesOfOneWriterAreMerged(t *testing.T) {
	disk := memory{}
	p := newObjects(t, disk)
	w := NodeWriter{User: "a", Subresource: "status"}
	p.learn(w, "m", nil, nodeOf("u", "m", "f/a", "f/b"))
	for _, one := range []*nodePatch{annotate(t, "f/a", "1"), annotate(t, "f/b", "1"), annotate(t, "f/a", "2")} {
		if err := p.add(w, "u", one); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{`a m {"metadata":{"uid":"u","annotations":{"f/a":"2","f/b":"1"}}}`}
	if got := waiting(p); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	p = newObjects(t, disk)
	if got := waiting(p); !slices.Equal(got, want) {
		t.Errorf("after a restart: %v", got)
	}
	before := p.Waiting()[0]
	if err := p.add(w, "u", annotate(t, "f/b", "3")); err != nil {
		t.Fatal(err)
	}
	p.Sent(before)
	if got := waiting(p); len(got) != 1 {
		t.Errorf("what came while the patch was sent: %v", got)
	}
	p.learn(w, "m", annotate(t, "f/a", "4"), nodeOf("u", "m", "f/a", "f/b"))
	newest := []string{`a m {"metadata":{"uid":"u","annotations":{"f/a":"4","f/b":"3"}}}`}
	if got := waiting(p); !slices.Equal(got, newest) {
		t.Errorf("after the agent has written itself: %v", got)
	}
	p.learn(w, "kubectl", annotate(t, "x", "1"), nodeOf("u", "m", "f/a", "f/b"))
	if got := waiting(p); !slices.Equal(got, newest) {
		t.Errorf("after another program of the account has written something: %v", got)
	}
	p.Sent(p.Waiting()[0])
	if got := waiting(p); len(got) != 0 {
		t.Errorf("after it was sent: %v", got)
	}
	if got := waiting(newObjects(t, disk)); len(got) != 0 {
		t.Errorf("after a restart: %v", got)
	}
}

func TestAPatchIsForOneNode(t *testing.T) {
	p := newObjects(t, memory{})
	w := NodeWriter{User: "a", Subresource: "status"}
	p.learn(w, "m", nil, nodeOf("u", "m", "f/a"))
	if err := p.add(w, "another", annotate(t, "f/a", "1")); err == nil {
		t.Error("another Node of the name")
	}
	if err := p.add(w, "u", annotate(t, "f/a", "1")); err != nil {
		t.Fatal(err)
	}
	p.learn(w, "m", annotate(t, "x", "1"), nodeOf("another", "m", "f/a"))
	if got := waiting(p); len(got) != 0 {
		t.Errorf("for a Node that is gone: %v", got)
	}
}

func TestPatchesAreBounded(t *testing.T) {
	p := newObjects(t, memory{})
	for i := range maxWriters {
		p.learn(NodeWriter{User: fmt.Sprint(i)}, "m", nil, nodeOf("u", "m", "f/a"))
	}
	if err := p.add(NodeWriter{User: "0"}, "u", annotate(t, "f/a", "1")); err != nil {
		t.Fatal(err)
	}
	p.learn(NodeWriter{User: "more"}, "m", nil, nodeOf("u", "m", "f/a"))
	for user, want := range map[string]bool{"0": true, "1": false, "2": true, "more": true} {
		if _, err := p.allowedLocked(NodeWriter{User: user}, "u", annotate(t, "f/a", "1")); (err == nil) != want {
			t.Errorf("writer %s: %v", user, err)
		}
	}
	if err := p.add(NodeWriter{User: "2"}, "u", annotate(t, "f/a", strings.Repeat("x", maxPatchBytes-100))); err != nil {
		t.Error(err)
	}
	p.learn(NodeWriter{User: "2"}, "m", annotate(t, "f/z", "1"), nodeOf("u", "m", "f/a", "f/b"))
	if err := p.add(NodeWriter{User: "2"}, "u", annotate(t, "f/b", strings.Repeat("x", 200))); err == nil {
		t.Error("more than the bound, in two patches")
	}
}
