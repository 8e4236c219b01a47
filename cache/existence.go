package cache

import (
	"encoding/json"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/tee"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// This file infers from answers other than objects whether an object exists: from a 404, and from answers to writes.

// notFound handles a 404. It counts only if its details name exactly this object: others may
// come from a proxy or a missing API.
func (x *exchange) notFound(res *http.Response, q *query.Query) {
	contentType := res.Header.Get("Content-Type")
	x.take(res, func(body []byte) error {
		s, err := decodeStatus(contentType, body)
		if err == nil && s.Reason == metav1.StatusReasonNotFound && s.Details != nil &&
			s.Details.Name == q.Name && s.Details.Kind == q.Resource.Resource && s.Details.Group == q.Resource.Group {
			if !x.cache.views.IsBeforeRestore(q.UserResource(), &x.moment) {
				x.cache.views.Absent(q, &x.moment)
			}
		}
		return err
	})
}

// decodeStatus decodes a body that is a Status; of another type it returns an empty one.
func decodeStatus(contentType string, body []byte) (*metav1.Status, error) {
	object, err := convert.DecodeBody(contentType, body, wire.TypeMeta{APIVersion: "v1", Kind: "Status"})
	if s, ok := object.(*metav1.Status); ok {
		return s, err
	}
	return &metav1.Status{}, err
}

// deleted handles the answer to a DELETE of one object. If the answer does not show whether
// the object is deleted or only terminating, the object is in doubt.
func (x *exchange) deleted(res *http.Response, q *query.Query) {
	dry, certain := x.dryRun()
	if dry {
		return
	}
	contentType, understood := res.Header.Get("Content-Type"), false
	sink := &tee.ObjectSink{Take: func(body []byte) error {
		understood = certain && x.tookDeletion(q, res.StatusCode, contentType, body)
		return nil
	}}
	tee.Body(res, tee.Decode(res, sink), func(err error) {
		if !understood {
			x.cache.views.Doubt(q.UserResource(), q.Member(), x.cache.views.Highest(q.Resource).Version())
		}
		x.cache.logUnkept(err)
	})
}

// tookDeletion returns false if the answer does not show whether the object is deleted.
func (x *exchange) tookDeletion(q *query.Query, code int, contentType string, body []byte) bool {
	repr := wire.ParseContentType(contentType)
	m, err := wire.Inspect(repr.Encoding, body)
	if err != nil {
		return false
	}
	if string(m.Kind) == "Status" {
		s, err := decodeStatus(contentType, body)
		if err != nil || s.Status != metav1.StatusSuccess || code == http.StatusAccepted || x.cache.views.IsBeforeRestore(q.UserResource(), &x.moment) {
			return false
		}
		uid := types.UID("")
		if s.Details != nil {
			uid = s.Details.UID
		}
		x.cache.views.Gone(q.UserResource(), q.Member(), x.moment.Version(), uid, true)
		return true
	}
	meta, err := metadataOf(repr.Encoding, body)
	if err != nil || meta.Name != q.Name || meta.ResourceVersion == "" {
		return false
	}
	if !lingers(q.Resource, meta) {
		x.cache.views.Gone(q.UserResource(), q.Member(), versions.Higher(x.moment.Version(), meta.ResourceVersion), meta.UID, true)
		return true
	}
	repr = wire.Answered(q.Accept, contentType)
	return repr.Cacheable() && x.keepBody(q, repr, body) == nil
}

// metadataOf decodes the metadata of an object.
func metadataOf(e wire.Encoding, body []byte) (*metav1.ObjectMeta, error) {
	bare, err := wire.AppendBare(nil, e, body)
	if err != nil {
		return nil, err
	}
	plain, err := convert.Metadata(e, wire.JSON, bare)
	if err != nil {
		return nil, err
	}
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(plain, &object); err != nil {
		return nil, err
	}
	return &object.ObjectMeta, nil
}

// lingers reports whether an object exists after its DELETE: it has finalizers or a grace
// period, or is a namespace, whose finalizers are in its spec.
func lingers(resource schema.GroupVersionResource, m *metav1.ObjectMeta) bool {
	grace := m.DeletionGracePeriodSeconds
	return len(m.Finalizers) > 0 || grace != nil && *grace > 0 || resource.GroupResource() == schema.GroupResource{Resource: "namespaces"}
}

// endedByWrite reports whether a write, also of the status, has completed the deletion of an
// object: it removed the last finalizer, or came between the two steps of a deletion without
// a grace period. The answer shows the object as written, but it no longer exists.
func (x *exchange) endedByWrite(repr wire.Representation, body []byte) bool {
	if x.req.Method == http.MethodGet || x.req.Method == http.MethodDelete {
		return false
	}
	meta, err := metadataOf(repr.Encoding, body)
	return err == nil && meta.DeletionTimestamp != nil && !lingers(x.resource(), meta)
}

// created caches an object that was created, which is newer than any deleted one.
func (x *exchange) created(res *http.Response) {
	if x.isDryRun() || x.info.Resource == "events" || storesNothing(x.info.APIGroup) {
		return
	}
	q := x.named()
	if repr := wire.Answered(q.Accept, res.Header.Get("Content-Type")); repr.Cacheable() {
		x.keepObject(res, q, repr)
		return
	}
	views := x.cache.views // its name is unknown: no older list proves an absence
	views.Floor(q.UserResource(), versions.Following(views.Highest(q.Resource).Version()))
}

// storesNothing reports whether objects created in a group are answered but not stored. The
// apiserver returns their metadata as they were sent, with a resourceVersion that the client
// may have made up.
func storesNothing(group string) bool {
	return group == authenticationv1.GroupName || group == authorizationv1.GroupName
}

// deletedAll records that any objects of a collection may be deleted.
func (x *exchange) deletedAll() {
	if dry, _ := x.dryRun(); dry {
		return
	}
	namespace, resource := x.info.Namespace, x.resource()
	if resource.Resource == "namespaces" {
		namespace = ""
	}
	views := x.cache.views
	views.DoubtAll(query.UserResource{User: x.who.user, Resource: resource}, namespace, views.Highest(resource).Version())
}
