package daemonset

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

func TestTargetOf(t *testing.T) {
	r := revision("abc", 7, "ds-uid", true)
	r.Data.Raw = []byte(`{"spec":{"template":{"$patch":"replace","spec":{
		"containers":[{"name":"app","image":"app:2"},{"name":"side","image":"side:1"}],
		"initContainers":[{"name":"init","image":"init:1"}],
		"imagePullSecrets":[{"name":"pull"}],
		"aFieldOfALaterKubernetes":{"x":1}}}}}`)
	target, err := TargetOf(r)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"revision":"abc","number":7,"containers":[{"name":"app","image":"app:2"},{"name":"side","image":"side:1"}],` +
		`"initContainers":[{"name":"init","image":"init:1"}],"imagePullSecrets":["pull"]}`
	if got := target.Encode(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestTargetOfNamesTheRevisionItCannotRead(t *testing.T) {
	noHash, noJSON, noContainers := revision("a", 1, "u", true), revision("a", 1, "u", true), revision("a", 1, "u", true)
	noHash.Labels = nil
	noHash.Data.Raw = []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"app:a"}]}}}}`)
	noJSON.Data.Raw = []byte(`{"spec":`)
	noContainers.Data.Raw = []byte(`{"spec":{}}`)
	for name, r := range map[string]*appsv1.ControllerRevision{
		"no hash": noHash, "no JSON": noJSON, "no containers": noContainers, "no data": {ObjectMeta: noJSON.ObjectMeta},
	} {
		if _, err := TargetOf(r); err == nil || !strings.Contains(err.Error(), "default/web-a") {
			t.Errorf("%s: got %v, want an error with the revision's name", name, err)
		}
	}
}
