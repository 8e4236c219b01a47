package patch

import (
	"errors"
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// applyFunc applies a patch, body, to the JSON of an object. like has the object's Go type, whose
// struct tags define how lists are merged. The error is an apiserver's.
type applyFunc func(before, body []byte, like runtime.Object) (after []byte, err error)

// strategicMerge is the patch of kubelets and event recorders.
func strategicMerge(before, body []byte, like runtime.Object) ([]byte, error) {
	if !isObject(body) {
		return nil, apierrors.NewBadRequest("the patch is not a JSON object")
	}
	after, err := strategicpatch.StrategicMergePatch(before, body, like)
	switch {
	case err == nil:
		return after, nil
	case errors.Is(err, mergepatch.ErrNoListOfLists), errors.Is(err, mergepatch.ErrPatchContentNotMatchRetainKeys):
		return nil, unprocessable(err.Error())
	default:
		return nil, apierrors.NewBadRequest(err.Error())
	}
}

// merge is RFC 7386.
func merge(before, body []byte, _ runtime.Object) ([]byte, error) {
	if !isObject(body) {
		return nil, apierrors.NewBadRequest("the patch is not a JSON object")
	}
	after, err := jsonpatch.MergePatch(before, body)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return after, nil
}

// Bounds of a JSON patch. An apiserver takes 10,000 operations, and bounds the size that copies
// add. The patches of a node's programs are short.
const (
	maxOperations = 1000
	maxCopies     = 8 // each can double an object
)

// operations is RFC 6902.
func operations(before, body []byte, _ runtime.Object) ([]byte, error) {
	list, err := jsonpatch.DecodePatch(body)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	copies := 0
	for _, operation := range list {
		if operation.Kind() == "copy" {
			copies++
		}
	}
	if len(list) > maxOperations || copies > maxCopies {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"The allowed maximum operations in a JSON patch is %d, and %d of them copies, got %d and %d", maxOperations, maxCopies, len(list), copies))
	}
	after, err := list.Apply(before)
	if err != nil {
		return nil, unprocessable(err.Error())
	}
	return after, nil
}

func isObject(body []byte) bool {
	var object map[string]any
	return json.Unmarshal(body, &object) == nil && object != nil
}
