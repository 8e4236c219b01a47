package fakeapiserver

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is a kind of objects that the server serves.
type Resource struct {
	Kind schema.GroupVersionKind
	list func() runtime.Object
}

// Resources are those that the server serves, by their name in paths.
func Resources() map[string]Resource {
	core := schema.GroupVersion{Version: "v1"}
	return map[string]Resource{
		"configmaps":     {core.WithKind("ConfigMap"), func() runtime.Object { return &corev1.ConfigMapList{} }},
		"pods":           {core.WithKind("Pod"), func() runtime.Object { return &corev1.PodList{} }},
		"services":       {core.WithKind("Service"), func() runtime.Object { return &corev1.ServiceList{} }},
		"endpointslices": {discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), func() runtime.Object { return &discoveryv1.EndpointSliceList{} }},
	}
}

// Query is what a LIST or WATCH asks for. The zero value of a field asks for all.
type Query struct {
	Resource  string
	Namespace string
	Labels    string // selector
	Fields    string // selector: metadata.name, metadata.namespace, spec.nodeName

	labels labels.Selector
	fields fields.Selector
}

// Parse checks the selectors. A Query without selectors needs no Parse.
func (q Query) Parse() (Query, error) {
	var errs [2]error
	q.labels, errs[0] = labels.Parse(q.Labels)
	q.fields, errs[1] = fields.ParseSelector(q.Fields)
	return q, errors.Join(errs[:]...)
}

func (q Query) selects(o Object) bool {
	if q.Namespace != "" && o.GetNamespace() != q.Namespace {
		return false
	}
	if q.labels != nil && !q.labels.Matches(labels.Set(o.GetLabels())) {
		return false
	}
	if q.fields == nil {
		return true
	}
	set := fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()}
	if pod, ok := o.(*corev1.Pod); ok {
		set["spec.nodeName"] = pod.Spec.NodeName
	}
	return q.fields.Matches(set)
}

// request is a Query with how it is asked.
type request struct {
	Query
	name     string // of a GET
	resource Resource
	encoding encoding

	watch, initialEvents, bookmarks bool
	version                         string
	limit                           int
	continuation                    string
}

var errUnknownPath = errors.New("the server has no such path")

func parse(r *http.Request) (request, error) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return request{}, errUnknownPath
	}
	q := request{encoding: encodingOf(r.Header.Get("Accept"))}
	if parts[0] == "namespaces" && len(parts) > 2 {
		q.Namespace, parts = parts[1], parts[2:]
	}
	q.Resource = parts[0]
	var ok bool
	if q.resource, ok = Resources()[q.Resource]; !ok || len(parts) > 2 {
		return request{}, errUnknownPath
	}
	if len(parts) == 2 {
		q.name = parts[1]
	}
	values := r.URL.Query()
	q.Labels, q.Fields = values.Get("labelSelector"), values.Get("fieldSelector")
	q.version, q.continuation = values.Get("resourceVersion"), values.Get("continue")
	q.limit, _ = strconv.Atoi(values.Get("limit"))
	for key, into := range map[string]*bool{"watch": &q.watch, "sendInitialEvents": &q.initialEvents, "allowWatchBookmarks": &q.bookmarks} {
		*into, _ = strconv.ParseBool(values.Get(key))
	}
	var err error
	if q.Query, err = q.Parse(); err != nil {
		return request{}, fmt.Errorf("selector: %w", err)
	}
	return q, nil
}
