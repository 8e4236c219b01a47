package cache

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// listing is a list that was read as a client would.
type listing struct {
	version, next string
	items         map[string]string // versions by "namespace/name"
	uids          map[string]string // by the same
}

// names are those of the items, without namespaces, in order.
func (l listing) names() []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(l.items)) {
		out = append(out, baseName(key))
	}
	return out
}

// baseName is an object's name without its namespace.
func baseName(key string) string { return key[strings.LastIndex(key, "/")+1:] }

// listing decodes the body of a LIST.
func (a answer) listing(t *testing.T) listing {
	t.Helper()
	l, err := decodeList(a.body)
	if err != nil {
		t.Fatalf("the list cannot be read: %v; it was %v", err, a)
	}
	return l
}

func decodeList(body []byte) (listing, error) {
	var object runtime.Object
	var err error
	if bytes.HasPrefix(body, []byte("k8s\x00")) {
		object, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	} else {
		object, _, err = unstructured.UnstructuredJSONScheme.Decode(body, nil, nil)
	}
	if err != nil {
		return listing{}, err
	}
	list, err := meta.ListAccessor(object)
	if err != nil {
		return listing{}, err
	}
	l := listing{version: list.GetResourceVersion(), next: list.GetContinue(), items: map[string]string{}, uids: map[string]string{}}
	err = meta.EachListItem(object, func(item runtime.Object) error {
		m, err := meta.Accessor(item)
		if err != nil {
			return err
		}
		key := m.GetNamespace() + "/" + m.GetName()
		if _, twice := l.items[key]; twice {
			return fmt.Errorf("%s is in the list twice", key)
		}
		l.items[key], l.uids[key] = m.GetResourceVersion(), string(m.GetUID())
		return nil
	})
	return l, err
}

// number is a version as a number: that is what etcd makes of it.
func number(t *testing.T, version string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		t.Fatalf("%q is no version", version)
	}
	return n
}

// with adds a parameter to a path.
func with(path, parameter string) string {
	if strings.Contains(path, "?") {
		return path + "&" + parameter
	}
	return path + "?" + parameter
}

// served fails the test unless a list is, byte for byte, what the apiserver has
// served at the version that the list carries.
func (a answer) served(t *testing.T, path, accept string) listing {
	t.Helper()
	if a.status != http.StatusOK {
		t.Fatalf("LIST %s: %v", path, a)
	}
	l := a.listing(t)
	want := env.direct.get(t, with(path, "resourceVersionMatch=Exact&resourceVersion="+l.version), accept)
	if !bytes.Equal(a.body, want.body) {
		w := want.listing(t)
		t.Fatalf("LIST %s at version %s is not what the apiserver has served:\n%s", path, l.version, differences(l.items, w.items))
	}
	return l
}

// servedList lists, and checks what came with served.
func (c *client) servedList(t *testing.T, path, accept string) listing {
	t.Helper()
	return c.do(t, request{path: path, accept: accept}).served(t, path, accept)
}

// differences describes in words how got is not want.
func differences(got, want map[string]string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(want)) {
		switch version, ok := got[name]; {
		case !ok:
			out = append(out, fmt.Sprintf("%s is missing, at version %s", name, want[name]))
		case version != want[name]:
			out = append(out, fmt.Sprintf("%s is at version %s instead of %s", name, version, want[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[name]; !ok {
			out = append(out, fmt.Sprintf("%s is there, at version %s, and should not be", name, got[name]))
		}
	}
	if len(out) == 0 {
		return "the same items, but other bytes"
	}
	const enough = 10
	if len(out) > enough {
		out = append(out[:enough], fmt.Sprintf("… %d in all", len(out)))
	}
	return strings.Join(out, "\n")
}
