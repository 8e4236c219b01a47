package fuzzcache

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/test/internal/fakeapiserver"
)

// metadataDifference returns which fields of an object's metadata are others than those that
// etcd had at its version. States have sums only, so etcd is asked once more.
func (w *world) metadataDifference(r *resource, got *state, body []byte) string {
	answer, err := w.askEtcd(w.t.Context(), map[string]any{"key": []byte("/registry/" + r.stored + "/" + got.key()), "revision": got.rev})
	if err != nil || len(answer.KVs) == 0 {
		return fmt.Sprintf("etcd does not say which metadata it had: %v", err)
	}
	had, err := metadataFields(answer.KVs[0].Value)
	if err != nil {
		return fmt.Sprintf("etcd's metadata cannot be read: %v", err)
	}
	have, err := metadataFields(body)
	if err != nil {
		return fmt.Sprintf("the metadata cannot be read: %v", err)
	}
	return difference(have, had)
}

// difference names the fields that differ.
func difference(got, want map[string]any) string {
	all := maps.Clone(got)
	maps.Copy(all, want)
	var text []string
	for _, field := range slices.Sorted(maps.Keys(all)) {
		if !reflect.DeepEqual(got[field], want[field]) {
			text = append(text, fmt.Sprintf("%s is %v, want %v", field, got[field], want[field]))
		}
	}
	if len(text) == 0 {
		return "the metadata are the same"
	}
	return "in the metadata " + strings.Join(text, "; ")
}

// metadataFields are the metadata of an object, but for its version, which etcd does not store.
func metadataFields(body []byte) (map[string]any, error) {
	if bytes.HasPrefix(body, []byte("k8s\x00")) {
		object, err := fakeapiserver.Decode(body)
		if err != nil {
			return nil, err
		}
		if body, err = json.Marshal(object); err != nil {
			return nil, err
		}
	}
	var object struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(body, &object); err != nil {
		return nil, err
	}
	object.Metadata.ResourceVersion = ""
	text, err := json.Marshal(object.Metadata)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	err = json.Unmarshal(text, &fields)
	managed, _ := fields["managedFields"].([]any) // nil is none
	delete(fields, "managedFields")
	for i, entry := range managed { // they are long
		fields[fmt.Sprintf("managedFields[%d]", i)] = entry
	}
	return fields, err
}
