package cache

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/edgehub-io/edgehub/cache/wire"
)

// query is what a request asks for, as far as the cache is concerned.
type query struct {
	user      string // see caller
	verb      string // "get", "list" or "watch"
	resource  schema.GroupVersionResource
	namespace string
	name      string // of "get"
	labels    string // label selector, as it was sent
	fields    string // field selector, as it was sent
	accept    string // the first Accept header: an apiserver reads no other

	// Of lists and watches.
	version       string // resourceVersion
	match         string // resourceVersionMatch
	limit         int64  // 0 is none
	continueToken string
	bookmarks     bool          // allowWatchBookmarks
	initialEvents bool          // sendInitialEvents
	timeout       time.Duration // of a watch; 0 lets the server choose
}

// params is the query of a request, read as an apiserver reads it (url.URL.Query): pairs
// that are broken are left out, names and values are decoded.
type params struct {
	url.Values
	// broken says that something was left out. An apiserver that was built with another
	// version of Go may read it otherwise, so nothing of the answer is kept.
	broken bool
}

func paramsOf(r *http.Request) params {
	values, err := url.ParseQuery(r.URL.RawQuery)
	return params{values, err != nil}
}

// parameters are those of GET, LIST and WATCH that the cache understands. An
// answer to a request with another one is passed on and not kept: apiservers ignore
// what they do not know, but a newer one may know it (shardSelector, since 1.36), and
// then the answer is not the one to the rest of the query.
var parameters = map[string]bool{
	"labelSelector": true, "fieldSelector": true, "watch": true,
	"resourceVersion": true, "resourceVersionMatch": true,
	"limit": true, "continue": true,
	"allowWatchBookmarks": true, "sendInitialEvents": true,
	"timeout": true, "timeoutSeconds": true, "pretty": true,
}

const (
	// maxSubdomain and maxLabel are how long Kubernetes lets names be.
	maxSubdomain = validation.DNS1123SubdomainMaxLength
	maxLabel     = validation.DNS1123LabelMaxLength
	// maxSelectors bounds the selectors of a list or watch. What is longer is not kept.
	maxSelectors = 4 << 10
)

// nameable reports whether there may be what a request names. Names stay in memory and on
// disk, and a URL holds a megabyte of them.
func nameable(info *request.RequestInfo) bool {
	return len(info.APIGroup) <= maxSubdomain && len(info.APIVersion) <= maxLabel && len(info.Resource) <= maxSubdomain &&
		len(info.Namespace) <= maxLabel && len(info.Name) <= maxSubdomain
}

// queryOf reads a GET request, and returns nil where the cache can do nothing
// with it: it is about no resource, or about a subresource, or asks for
// something that the cache does not know.
func queryOf(r *http.Request, values params, info *request.RequestInfo, user string) *query {
	if r.Method != http.MethodGet || info == nil || !info.IsResourceRequest || info.Subresource != "" || values.broken {
		return nil
	}
	for name := range values.Values { // of a parameter that is there twice the first counts, as for an apiserver
		if !parameters[name] {
			return nil
		}
	}
	q := &query{
		user:     user,
		verb:     info.Verb,
		resource: schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource},
		accept:   r.Header.Get("Accept"),

		labels:        values.Get("labelSelector"),
		fields:        values.Get("fieldSelector"),
		version:       values.Get("resourceVersion"),
		match:         values.Get("resourceVersionMatch"),
		continueToken: values.Get("continue"),
	}
	if len(q.labels)+len(q.fields) > maxSelectors {
		return nil
	}
	if info.Resource != "namespaces" { // there, requestinfo says its name twice
		q.namespace = info.Namespace
	}
	return q.complete(info, values)
}

// complete reads what depends on the verb.
func (q *query) complete(info *request.RequestInfo, values params) *query {
	switch q.verb {
	case "get":
		q.name = info.Name
		return q
	case "list", "watch":
	default:
		return nil
	}
	if values.isTrue("watch") != (q.verb == "watch") || watchInPath(info) {
		return nil
	}
	if limit := values.Get("limit"); limit != "" {
		n, err := strconv.ParseInt(limit, 10, 64)
		if err != nil || n < 0 {
			return nil
		}
		q.limit = n
	}
	q.bookmarks = values.isTrue("allowWatchBookmarks")
	q.initialEvents = values.isTrue("sendInitialEvents")
	if q.verb == "watch" && values.Has("sendInitialEvents") && !q.initialEvents && !isVersion(q.version) {
		return nil // from whatever version it is, without what was there: there is nothing to feed a view from
	}
	if seconds := values.Get("timeoutSeconds"); seconds != "" {
		n, err := strconv.ParseInt(seconds, 10, 32)
		if err != nil || n < 0 {
			return nil
		}
		q.timeout = time.Duration(n) * time.Second
	}
	return q
}

// watchInPath reports whether the request is a watch by its path, /api/v1/watch/pods, as
// was usual before Kubernetes 1.11. A namespace may be called watch, too.
func watchInPath(info *request.RequestInfo) bool {
	verb := 2 // /api/VERSION/VERB
	if info.APIPrefix != "api" {
		verb = 3 // /apis/GROUP/VERSION/VERB
	}
	parts := strings.Split(strings.Trim(info.Path, "/"), "/")
	return len(parts) > verb && parts[verb] == "watch"
}

// isTrue reads a parameter as an apiserver does (runtime.Convert_Slice_string_To_bool):
// what is there and not false is true, the empty word too.
func (p params) isTrue(name string) bool {
	if !p.Has(name) {
		return false
	}
	switch strings.ToLower(p.Get(name)) {
	case "false", "0":
		return false
	}
	return true
}

// consistent reports whether an answer shows the newest state there is, rather
// than one that an apiserver remembers.
func (q *query) consistent() bool {
	return q.version == "" && q.continueToken == "" &&
		(q.match == "" || q.match == string(metav1.ResourceVersionMatchNotOlderThan))
}

// key is that of the view in a representation.
func (q *query) key(r wire.Representation) viewKey {
	k := viewKey{
		User: q.user, Group: q.resource.Group, Version: q.resource.Version, Resource: q.resource.Resource,
		Representation: r.String(),
	}
	if q.verb == "get" {
		k.Single = true
		return k
	}
	k.Namespace, k.Labels, k.Fields = q.namespace, q.labels, q.fields
	return k
}

// String is for logs.
func (q *query) String() string {
	s := q.verb + " " + q.resource.GroupResource().String()
	if q.namespace != "" {
		s += " in " + q.namespace
	}
	if q.name != "" {
		s += " " + q.name
	}
	if q.fields != "" {
		s += " where " + q.fields
	}
	if q.labels != "" {
		s += " labelled " + q.labels
	}
	return s
}

// splitMember is the reverse of memberName.
func splitMember(member string) (namespace, name string) {
	if namespace, name, ok := strings.Cut(member, "/"); ok {
		return namespace, name
	}
	return "", member
}

// memberName is how objects are called in views: "namespace/name", or "name".
func memberName(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// of is the user and resource that a query is about.
func (q *query) of() userResource { return userResource{q.user, q.resource} }

// member is what the object that a query names is called in views.
func (q *query) member() string { return memberName(q.namespace, q.name) }
