package controller

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

func ownedBy(uid types.UID, controller bool) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "web", UID: uid, Controller: &controller}}
}

func revision(hash string, number int64, owner types.UID) *appsv1.ControllerRevision {
	r := &appsv1.ControllerRevision{Revision: number}
	r.Namespace, r.Name = "default", "web-"+hash
	r.Labels = map[string]string{appsv1.ControllerRevisionHashLabelKey: hash}
	r.OwnerReferences = ownedBy(owner, true)
	r.Data = runtime.RawExtension{Raw: fmt.Appendf(nil,
		`{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"app","image":"app:%s"}]}}}}`, hash)}
	return r
}

func TestTargetOf(t *testing.T) {
	r := revision("abc", 1, "ds-uid")
	r.Data.Raw = []byte(`{"spec":{"template":{"$patch":"replace","spec":{
		"containers":[{"name":"app","image":"app:2"},{"name":"side","image":"side:1"}],
		"initContainers":[{"name":"init","image":"init:1"}],
		"imagePullSecrets":[{"name":"pull"}],
		"aFieldOfALaterKubernetes":{"x":1}}}}}`)
	target, err := targetOf(r)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"revision":"abc","containers":[{"name":"app","image":"app:2"},{"name":"side","image":"side:1"}],` +
		`"initContainers":[{"name":"init","image":"init:1"}],"imagePullSecrets":["pull"]}`
	if got := target.Encode(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestTargetOfNamesTheRevisionItCannotRead(t *testing.T) {
	noHash, noJSON, noContainers := revision("a", 1, "u"), revision("a", 1, "u"), revision("a", 1, "u")
	noHash.Labels = nil
	noJSON.Data.Raw = []byte(`{"spec":`)
	noContainers.Data.Raw = []byte(`{"spec":{}}`)
	for name, r := range map[string]*appsv1.ControllerRevision{
		"no hash": noHash, "no JSON": noJSON, "no containers": noContainers, "no data": {ObjectMeta: noJSON.ObjectMeta},
	} {
		if _, err := targetOf(r); err == nil || !strings.Contains(err.Error(), "default/web-a") {
			t.Errorf("%s: got %v, want an error with the revision's name", name, err)
		}
	}
}
