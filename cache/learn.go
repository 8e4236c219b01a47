package cache

import (
	"encoding/json"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// of is the user and resource that a query is about.
func (q *query) of() userResource { return userResource{q.user, q.resource} }

// member is what the object that a query names is called in views.
func (q *query) member() string { return memberName(q.namespace, q.name) }

// notFound looks at a 404. Only if it says of this very object that it is not there, it
// says something.
func (x *exchange) notFound(res *http.Response, q *query) {
	contentType := res.Header.Get("Content-Type")
	sink := &objectSink{take: func(body []byte) error {
		object, err := convert.DecodeBody(contentType, body, wire.TypeMeta{APIVersion: "v1", Kind: "Status"})
		if err != nil {
			return err
		}
		s, ok := object.(*metav1.Status)
		if ok && s.Reason == metav1.StatusReasonNotFound && s.Details != nil &&
			s.Details.Name == q.name && s.Details.Kind == q.resource.Resource && s.Details.Group == q.resource.Group {
			x.absent(q)
		}
		return nil
	}}
	teeBody(res, decode(res, sink), x.cache.looked)
}

// absent notes that an apiserver does not have an object.
func (x *exchange) absent(q *query) {
	of, name, r := q.of(), q.member(), x.cache.records
	copies, known := x.cache.views.copies(of, name), r.known(of, q.namespace, name)
	if !q.consistent() { // of which state the apiserver spoke is not known
		if len(copies.all) > 0 {
			r.doubt(of, name, r.highest(q.resource).version())
		}
		return
	}
	if known.Gone != "" && compare(copies.seen(known), known.Gone) <= 0 {
		return // there is nothing new
	}
	uid := types.UID("")
	for i := range copies.all {
		if c := &copies.all[i]; uid == "" && compare(c.entry.version, x.moment.version()) <= 0 {
			uid = c.uid()
		}
	}
	x.cache.views.gone(of, name, x.moment.version(), uid, len(copies.all) > 0)
}

// deleted looks at the answer to a DELETE of one object. Until it is known whether the
// object has gone, or is only about to go, what is known of it is in doubt.
func (x *exchange) deleted(res *http.Response, q *query) {
	dry, certain := x.isDryRunDelete()
	if dry {
		return
	}
	contentType, understood := res.Header.Get("Content-Type"), false
	sink := &objectSink{take: func(body []byte) error {
		understood = certain && x.tookDeletion(q, res.StatusCode, contentType, body)
		return nil
	}}
	teeBody(res, decode(res, sink), func(err error) {
		if !understood {
			x.cache.records.doubt(q.of(), q.member(), x.cache.records.highest(q.resource).version())
		}
		x.cache.looked(err)
	})
}

// tookDeletion returns false if the answer does not say whether the object has gone.
func (x *exchange) tookDeletion(q *query, code int, contentType string, body []byte) bool {
	repr := wire.ParseContentType(contentType)
	m, err := wire.Inspect(repr.Encoding, body)
	if err != nil {
		return false
	}
	if string(m.Kind) == "Status" {
		object, err := convert.DecodeBody(contentType, body, wire.TypeMeta{APIVersion: "v1", Kind: "Status"})
		s, ok := object.(*metav1.Status)
		if err != nil || !ok || s.Status != metav1.StatusSuccess || code == http.StatusAccepted {
			return false
		}
		x.cache.views.gone(q.of(), q.member(), x.moment.version(), uidOf(s.Details), true)
		return true
	}
	meta, err := metadataOf(repr.Encoding, body)
	if err != nil || meta.Name != q.name || meta.ResourceVersion == "" {
		return false
	}
	if !lingers(q.resource, meta) {
		x.cache.views.gone(q.of(), q.member(), higher(x.moment.version(), meta.ResourceVersion), meta.UID, true)
		return true
	}
	repr = wire.Answered(q.accept, contentType)
	return repr.Cacheable() && x.keepBody(q, repr, body) == nil
}

func uidOf(d *metav1.StatusDetails) types.UID {
	if d == nil {
		return ""
	}
	return d.UID
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

// lingers reports whether an object that was deleted is still there: its finalizers have to
// be removed first, it has time to end, or it is a namespace, which has finalizers elsewhere.
func lingers(resource schema.GroupVersionResource, m *metav1.ObjectMeta) bool {
	grace := m.DeletionGracePeriodSeconds
	return len(m.Finalizers) > 0 || grace != nil && *grace > 0 || resource.GroupResource() == schema.GroupResource{Resource: "namespaces"}
}

// isDryRunDelete reports whether a DELETE changes nothing, and whether that is certain.
func (x *exchange) isDryRunDelete() (dry, certain bool) {
	body, err := x.body()
	switch {
	case err != nil:
		return false, false
	case len(body) == 0:
		return x.params.Has("dryRun") && !x.params.broken, !x.params.broken
	}
	options, err := deleteOptions(x.req.Header.Get("Content-Type"), body)
	if err != nil {
		return false, false
	}
	return len(options.DryRun) > 0, true
}

// endedByWrite reports whether a write has carried out the deletion of an object: it took
// the last finalizer, or came between the two steps of a deletion without a grace period. The
// answer shows what would have been written, and the object is gone. A write of the status
// is such a write like any other.
func (x *exchange) endedByWrite(repr wire.Representation, body []byte) bool {
	if x.req.Method == http.MethodGet || x.req.Method == http.MethodDelete {
		return false
	}
	meta, err := metadataOf(repr.Encoding, body)
	return err == nil && meta.DeletionTimestamp != nil && !lingers(x.resource(), meta)
}

// created has an object kept that was created. It is newer than whatever went before it.
func (x *exchange) created(res *http.Response) {
	if x.isDryRun() || x.info.Resource == "events" || storesNothing(x.info.APIGroup) {
		return
	}
	q := x.named()
	if repr := wire.Answered(q.accept, res.Header.Get("Content-Type")); repr.Cacheable() {
		x.keepObject(res, q, repr)
	}
}

// storesNothing reports whether what is created in a group is answered and not stored. An
// apiserver gives the metadata back as they were sent, with a resourceVersion that anybody
// can make up.
func storesNothing(group string) bool {
	return group == authenticationv1.GroupName || group == authorizationv1.GroupName
}

// newest is the highest version in a list that was not read to its end.
func (s *stage) newest() string {
	version := s.meta.ResourceVersion
	for _, item := range s.items {
		version = higher(version, item.version)
	}
	return version
}

// ended notes which members a list had no more, of a view that objects leave only by their
// deletion, and which cannot prove that something is not there by itself. What has gone is
// the object that the view had. Another one of that name may be elsewhere; where it is not
// known which one a copy is of, it is in doubt.
func (c *Cache) ended(s *stage) {
	of := s.view.key.of()
	for name, uid := range s.ended {
		if c.views.gone(of, name, s.endedAt, uid, true); uid == "" {
			c.records.doubt(of, name, c.records.highest(of.resource).version())
		}
	}
	for name, version := range s.left {
		c.outlived(s.view, name, version)
	}
}

// endedCopies records as deleted the pods that were read one by one, and that a list of a
// node's pods should have and does not: a pod leaves such a view only by its deletion. The
// pods need not have been members of the view, which may have been evicted meanwhile.
func (c *Cache) endedCopies(s *stage, version string) {
	of, key := s.view.key.of(), &s.view.key
	if of.resource.GroupResource() != (schema.GroupResource{Resource: "pods"}) || key.proves() || !key.lasting() {
		return
	}
	for _, single := range c.views.resource(of.user, of.resource) {
		if !single.key.Single || single.repr.Metadata != "" {
			continue
		}
		for _, name := range single.provenUpTo(version) {
			if _, ok := s.items[name]; ok {
				continue
			}
			// Since the version of the copy another pod of that name may be on another node.
			if pod := single.pod(name); pod != nil && key.selects(pod) {
				c.views.gone(of, name, pod.ResourceVersion, pod.UID, true)
			}
		}
	}
}

// pod reads a member that is a pod; nil if it cannot be read.
func (v *view) pod(name string) *corev1.Pod {
	e, ok := v.member(name)
	if !ok {
		return nil
	}
	bare, err := v.stored(name, e)
	if err != nil {
		return nil
	}
	object, _ := convert.FromBare(v.repr.Encoding, wire.TypeMeta{APIVersion: "v1", Kind: "Pod"}, bare)
	pod, _ := object.(*corev1.Pod) // nil is no pod
	return pod
}

// selects reports whether a pod is in a view that is lasting.
func (k *viewKey) selects(pod *corev1.Pod) bool {
	selector, err := fields.ParseSelector(k.Fields)
	return err == nil && (k.Namespace == "" || k.Namespace == pod.Namespace) && selector.Matches(fields.Set{
		"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "spec.nodeName": pod.Spec.NodeName,
	})
}

// outlived is called when a view does not show an object any more, which it had at a
// version, though the object may be there. Older copies are not what the user saw last.
func (c *Cache) outlived(v *view, name, version string) {
	if !isVersion(version) || v.key.lasting() {
		return
	}
	of := v.key.of()
	copies := c.views.copies(of, name)
	if newest := newestOf(copies.all); newest != "" && compare(newest, version) < 0 {
		c.records.doubt(of, name, preceding(version))
	}
}

// shown is the version at which the view has an object, or "".
func (v *view) shown(name string) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lost.Load() || v.loadLocked() != nil {
		return ""
	}
	return v.index[name].version
}

// deletedAll notes that any of many objects may be gone.
func (x *exchange) deletedAll() {
	if dry, _ := x.isDryRunDelete(); dry {
		return
	}
	namespace, resource := x.info.Namespace, x.resource()
	if resource.Resource == "namespaces" {
		namespace = ""
	}
	r := x.cache.records
	r.doubtAll(userResource{x.who.user, resource}, namespace, r.highest(resource).version())
}

// left notes a DELETED event. It says that the object has left what the watch selects; that
// it is gone only where it could not leave in another way.
func (s *stream) left(namespace, name, version string, uid types.UID) {
	of := s.query.of()
	if !s.view.key.lasting() {
		s.cache.records.seen(of, memberName(namespace, name), version, uid)
		return
	}
	if !s.view.lacks(namespace, name, version) || s.cache.views.holds(of, memberName(namespace, name)) {
		s.cache.views.gone(of, memberName(namespace, name), version, uid, true)
	}
}

// lasting reports whether an object stays in the view for as long as it exists: it is
// selected by nothing that can change.
func (k *viewKey) lasting() bool {
	selector, err := fields.ParseSelector(k.Fields)
	if err != nil || k.Labels != "" {
		return false
	}
	for _, r := range selector.Requirements() {
		switch {
		case r.Field == "metadata.name", r.Field == "metadata.namespace":
		case r.Field == "spec.nodeName" && k.Group == "" && k.Resource == "pods" && r.Value != "" && r.Operator != selection.NotEquals:
		default:
			return false
		}
	}
	return true
}
