package wire_test

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/cache/wire"
)

func TestSetVersionChangesNothingButTheVersion(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b", UID: "u", ResourceVersion: "7", Labels: map[string]string{"x": "y"}},
		Spec:       corev1.PodSpec{NodeName: "n"},
	}
	want := pod.DeepCopy()
	want.ResourceVersion = "123456"
	for _, e := range []wire.Encoding{wire.Protobuf, wire.JSON} {
		bare, err := pod.Marshal()
		if e == wire.JSON {
			bare, err = json.Marshal(pod)
		}
		if err != nil {
			t.Fatal(err)
		}
		out, err := wire.SetVersion(e, bare, "123456")
		if err != nil {
			t.Fatalf("%s: %v", e, err)
		}
		got := &corev1.Pod{}
		if e == wire.JSON {
			err = json.Unmarshal(out, got)
		} else {
			err = got.Unmarshal(out)
		}
		if err != nil || !equality.Semantic.DeepEqual(got, want) {
			t.Errorf("%s: got %v (%v), want %v", e, got, err, want)
		}
		if _, err := wire.SetVersion(e, bare[:len(bare)-1], "1"); err == nil {
			t.Errorf("%s: an object that is cut short was taken", e)
		}
	}
}
