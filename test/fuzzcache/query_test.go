package fuzzcache

import (
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// resource is one that clients read.
type resource struct {
	name   string
	prefix string // of paths
	stored string // in etcd, below /registry
}

const group = "fuzz.edgehub.io"

var (
	configMaps = &resource{"configmaps", "/api/v1", "configmaps"}                   //nolint:gochecknoglobals // never changed
	pods       = &resource{"pods", "/api/v1", "pods"}                               //nolint:gochecknoglobals // never changed
	secrets    = &resource{"secrets", "/api/v1", "secrets"}                         //nolint:gochecknoglobals // never changed
	widgets    = &resource{"widgets", "/apis/" + group + "/v1", group + "/widgets"} //nolint:gochecknoglobals // never changed
	resources  = []*resource{configMaps, secrets, pods, widgets}                    //nolint:gochecknoglobals // never changed
)

const (
	first, second = "fuzz-a", "fuzz-b" // namespaces
	foreign       = "fuzz-m"           // namespace: of a service account that attacks
	tier          = "tier"             // label: what selectors ask for
)

// query is what a LIST or a WATCH asks for.
type query struct {
	resource  *resource
	namespace string // empty: all
	labels    string // selector
	fields    string // selector
	label     labels.Selector
	field     fields.Selector
}

func newQuery(r *resource, namespace, labelSelector, fieldSelector string) *query {
	q := &query{resource: r, namespace: namespace, labels: labelSelector, fields: fieldSelector}
	var err error
	if q.label, err = labels.Parse(labelSelector); err != nil {
		panic(err) // it stands below
	}
	if q.field, err = fields.ParseSelector(fieldSelector); err != nil {
		panic(err)
	}
	return q
}

func (q *query) selects(s *state) bool {
	if q.namespace != "" && q.namespace != s.namespace {
		return false
	}
	return q.label.Matches(labels.Set(s.labels)) &&
		q.field.Matches(fields.Set{"metadata.name": s.name, "metadata.namespace": s.namespace, "spec.nodeName": s.node, "status.phase": s.status.phase})
}

// all reports that the query shows everything in its namespace.
func (q *query) all() bool { return q.labels == "" && q.fields == "" }

func (r *resource) path(namespace string) string {
	if namespace == "" {
		return r.prefix + "/" + r.name
	}
	return r.prefix + "/namespaces/" + namespace + "/" + r.name
}

func (q *query) path(more ...string) string {
	values := url.Values{}
	if q.labels != "" {
		values.Set("labelSelector", q.labels)
	}
	if q.fields != "" {
		values.Set("fieldSelector", q.fields)
	}
	for i := 0; i+1 < len(more); i += 2 {
		if more[i+1] != "" {
			values.Set(more[i], more[i+1])
		}
	}
	path := q.resource.path(q.namespace)
	if len(values) > 0 {
		path += "?" + values.Encode()
	}
	return path
}

func (q *query) String() string { return q.path() }

// queriesIn are what a user reads who may read these namespaces; "" is all.
func queriesIn(node string, namespaces ...string) []*query {
	var all []*query
	for _, namespace := range namespaces {
		all = append(all,
			newQuery(configMaps, namespace, "", ""),
			newQuery(configMaps, namespace, tier+"=x", ""),
			newQuery(configMaps, namespace, tier+" in (x,y)", ""),
			newQuery(configMaps, namespace, tier+"!=z", ""),
			newQuery(configMaps, namespace, "", "metadata.name=c-1"),
			newQuery(secrets, namespace, "", ""),
			newQuery(pods, namespace, "", ""),
			newQuery(pods, namespace, "", "spec.nodeName="+node),
			newQuery(pods, namespace, tier+"=y", "spec.nodeName="+node),
			newQuery(pods, namespace, "", "status.phase=Running"),
			newQuery(widgets, namespace, "", ""),
			newQuery(widgets, namespace, tier+"=x", ""),
		)
	}
	return all
}

// form is how a client wants to have objects.
type form struct {
	name   string
	accept func(list bool) string
	// kind is that of the view, as long as the same form comes back: what two clients of
	// one user and one kind read is the same.
	kind string
}

func metadataAs(mediaType string) func(bool) string {
	return func(list bool) string {
		kind := "PartialObjectMetadata"
		if list {
			kind += "List"
		}
		return mediaType + ";as=" + kind + ";g=meta.k8s.io;v=v1"
	}
}

const (
	asJSON     = "application/json"
	asProtobuf = "application/vnd.kubernetes.protobuf"
	tableV1    = ";as=Table;v=v1;g=meta.k8s.io"
)

func always(accept string) func(bool) string { return func(bool) string { return accept } }

var forms = []*form{ //nolint:gochecknoglobals // never changed
	{"JSON", always(asJSON), "JSON"},
	{"anything", always("*/*"), "JSON"},
	{"protobuf", always(asProtobuf + "," + asJSON), "protobuf"},
	{"metadata in JSON", metadataAs(asJSON), "metadata in JSON"},
	{"metadata in protobuf", metadataAs(asProtobuf), "metadata in protobuf"},
	{"metadata, or else objects", func(list bool) string {
		return metadataAs(asProtobuf)(list) + "," + metadataAs(asJSON)(list) + "," + asJSON
	}, "metadata, or else objects"},
	{"a table", always(asJSON + tableV1 + "," + asJSON + ";as=Table;v=v1beta1;g=meta.k8s.io," + asJSON), "JSON"},
}

// table reports that this is what kubectl asks for: a table, which the hub does not keep,
// or else JSON.
func (f *form) table() bool { return strings.Contains(f.accept(true), tableV1) }

func (f *form) metadata() bool { return strings.HasPrefix(f.kind, "metadata") }
