// Package patch applies a PUT or a PATCH to an object like an apiserver, for the few requests that
// are answered while the cloud is away: strategic merge patches, JSON merge patches and JSON
// patches, of built-in types.
//
// It protects writers from each other (names, UIDs, resourceVersions) and keeps an object readable.
// It does not validate, admit, default or track field managers: the client repeats its request when
// the cloud is back, and gets the apiserver's errors then. So server-side apply, which is about
// field managers, is not supported.
//
// The package has no state: everything is safe for concurrent use.
package patch

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// ErrUnsupported is returned for what only an apiserver can do: server-side apply, and methods
// other than PUT and PATCH. The client gets 503.
var ErrUnsupported = errors.New("this can only be done by the apiserver")

// Request is a PUT or a PATCH of one object.
type Request struct {
	Method      string
	ContentType string
	Body        []byte
	Resource    schema.GroupResource // for errors
}

// Apply returns the result of a request on current, which it does not change. The TypeMeta of
// current must be set. The result has the identity and the resourceVersion of current.
//
// Errors are ErrUnsupported, convert.ErrUnknownType, and an apierrors.APIStatus like an
// apiserver's: 400, 409, 413, 415 or 422.
func Apply(r Request, current runtime.Object) (runtime.Object, error) {
	t := typeOf(current)
	var (
		next runtime.Object
		err  error
	)
	switch r.Method {
	case http.MethodPut:
		next, err = Decode(r.ContentType, r.Body, t)
	case http.MethodPatch:
		next, err = patched(r, t, current)
	default:
		err = fmt.Errorf("%s %s: %w", r.Method, r.Resource, ErrUnsupported)
	}
	if err != nil {
		return nil, err
	}
	if err := identify(r.Resource, next, current); err != nil {
		return nil, err
	}
	return next, nil
}

// Decode decodes the body of a POST or PUT of an object of type t. Errors are an
// apierrors.APIStatus: 400 or 415.
func Decode(contentType string, body []byte, t wire.TypeMeta) (runtime.Object, error) {
	object, err := convert.DecodeBody(contentType, body, t)
	switch {
	case errors.Is(err, convert.ErrMediaType):
		return nil, unsupportedMediaType(runtime.ContentTypeJSON, runtime.ContentTypeProtobuf)
	case err != nil:
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if got := typeOf(object); got != t {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s %s in the data does not match the expected %s %s",
			got.APIVersion, got.Kind, t.APIVersion, t.Kind))
	}
	return object, nil
}

// patched applies a PATCH, in JSON.
func patched(r Request, t wire.TypeMeta, current runtime.Object) (runtime.Object, error) {
	apply, err := patchOf(r.ContentType)
	if err != nil {
		return nil, err
	}
	before, err := convert.ToBare(wire.JSON, current)
	if err != nil {
		return nil, err
	}
	// With its type: a patch may test or repeat it.
	after, err := apply(wire.AppendObject(nil, wire.JSON, t, before), r.Body, current)
	if err != nil {
		return nil, err
	}
	next, err := convert.FromBare(wire.JSON, t, after)
	if err != nil {
		return nil, apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{
			field.Invalid(field.NewPath("patch"), field.OmitValueType{}, err.Error()),
		})
	}
	return next, nil
}

// identify sets on next what a client cannot change, after checking that the client means this
// object, and not an older version of it.
func identify(resource schema.GroupResource, next, current runtime.Object) error {
	to, err := meta.Accessor(next)
	if err != nil {
		return err
	}
	from, err := meta.Accessor(current)
	if err != nil {
		return err
	}
	name := from.GetName()
	switch {
	case to.GetName() != name:
		return apierrors.NewBadRequest(fmt.Sprintf(
			"the name of the object (%s) does not match the name on the URL (%s)", to.GetName(), name))
	case to.GetNamespace() != "" && to.GetNamespace() != from.GetNamespace():
		return apierrors.NewBadRequest(fmt.Sprintf(
			"the namespace of the object (%s) does not match the namespace on the request (%s)", to.GetNamespace(), from.GetNamespace()))
	case to.GetUID() != "" && to.GetUID() != from.GetUID():
		return apierrors.NewConflict(resource, name, fmt.Errorf(
			"precondition failed: UID in precondition: %v, UID in object meta: %v", to.GetUID(), from.GetUID()))
	case Older(to.GetResourceVersion(), from.GetResourceVersion()):
		return apierrors.NewConflict(resource, name, errModified)
	}
	to.SetNamespace(from.GetNamespace())
	to.SetGenerateName(from.GetGenerateName())
	to.SetUID(from.GetUID())
	to.SetResourceVersion(from.GetResourceVersion())
	to.SetGeneration(from.GetGeneration())
	to.SetCreationTimestamp(from.GetCreationTimestamp())
	to.SetDeletionTimestamp(from.GetDeletionTimestamp())
	to.SetDeletionGracePeriodSeconds(from.GetDeletionGracePeriodSeconds())
	to.SetManagedFields(from.GetManagedFields())
	to.SetSelfLink(from.GetSelfLink())
	return nil
}

// Older reports whether version a of an object is older than version b. An empty version is never
// older. Of versions that cannot be compared and are not equal, a is the older one.
func Older(a, b string) bool {
	if a == "" || b == "" || a == b {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err != nil || order < 0
}

// errModified has the text of an apiserver.
var errModified = errors.New("the object has been modified; please apply your changes to the latest version and try again")

func typeOf(object runtime.Object) (t wire.TypeMeta) {
	t.APIVersion, t.Kind = object.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
	return t
}

// patchOf returns the function for a Content-Type.
func patchOf(contentType string) (applyFunc, error) {
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		mediaType = ""
	}
	switch types.PatchType(mediaType) {
	case types.StrategicMergePatchType:
		return strategicMerge, nil
	case types.MergePatchType:
		return merge, nil
	case types.JSONPatchType:
		return operations, nil
	case types.ApplyYAMLPatchType, types.ApplyCBORPatchType:
		return nil, fmt.Errorf("server-side apply: %w", ErrUnsupported)
	default:
		return nil, unsupportedMediaType(string(types.JSONPatchType), string(types.MergePatchType), string(types.StrategicMergePatchType))
	}
}

func unsupportedMediaType(accepted ...string) error {
	return apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "", schema.GroupResource{}, "",
		"the body of the request was in an unknown format - accepted media types include: "+strings.Join(accepted, ", "), 0, false)
}

func unprocessable(message string) error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", message, 0, false)
}
