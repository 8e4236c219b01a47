// Package query reads what a request asks for: the query, and the key of the view that
// answers it. It keeps no state.
package query

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

	"github.com/edgehub-io/edgehub/cache/negotiation"
	"github.com/edgehub-io/edgehub/cache/versions"
)

// Query is what a request asks for, as far as the cache is concerned.
type Query struct {
	User      string // of whom an apiserver sees the request; see NodeUser
	Verb      string // "get", "list" or "watch"
	Resource  schema.GroupVersionResource
	Namespace string
	Name      string // of "get"
	Labels    string // label selector, as it was sent
	Fields    string // field selector, as it was sent
	Accept    string // the first Accept header: an apiserver reads no other

	// Of lists and watches.
	Version       string // resourceVersion
	VersionMatch  string // resourceVersionMatch
	limit         int64  // 0 is none
	ContinueToken string
	Bookmarks     bool          // allowWatchBookmarks
	InitialEvents bool          // sendInitialEvents
	Timeout       time.Duration // of a watch; 0 lets the server choose
}

// Params is the query of a request, read as an apiserver reads it (url.URL.Query): pairs
// that are broken are left out, names and values are decoded.
type Params struct {
	url.Values
	// Broken says that something was left out. An apiserver that was built with another
	// version of Go may read it otherwise, so nothing of the answer is kept.
	Broken bool
}

// ParamsOf reads the query of a request.
func ParamsOf(r *http.Request) Params {
	values, err := url.ParseQuery(r.URL.RawQuery)
	return Params{values, err != nil}
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
	// MaxSelectors bounds the selectors of a list or watch. What is longer is not kept.
	MaxSelectors = 4 << 10
)

// Nameable reports whether there may be what a request names. Names stay in memory and on
// disk, and a URL holds a megabyte of them.
func Nameable(info *request.RequestInfo) bool {
	return len(info.APIGroup) <= maxSubdomain && len(info.APIVersion) <= maxLabel && len(info.Resource) <= maxSubdomain &&
		len(info.Namespace) <= maxLabel && len(info.Name) <= maxSubdomain
}

// Of reads a GET request, and returns nil where the cache can do nothing
// with it: it is about no resource, or about a subresource, or asks for
// something that the cache does not know.
func Of(r *http.Request, values Params, info *request.RequestInfo, user string) *Query {
	if r.Method != http.MethodGet || info == nil || !info.IsResourceRequest || info.Subresource != "" || values.Broken {
		return nil
	}
	for name := range values.Values { // of a parameter that is there twice the first counts, as for an apiserver
		if !parameters[name] {
			return nil
		}
	}
	q := &Query{
		User:     user,
		Verb:     info.Verb,
		Resource: schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource},
		Accept:   r.Header.Get("Accept"),

		Labels:        values.Get("labelSelector"),
		Fields:        values.Get("fieldSelector"),
		Version:       values.Get("resourceVersion"),
		VersionMatch:  values.Get("resourceVersionMatch"),
		ContinueToken: values.Get("continue"),
	}
	if len(q.Labels)+len(q.Fields) > MaxSelectors {
		return nil
	}
	if info.Resource != "namespaces" { // there, requestinfo says its name twice
		q.Namespace = info.Namespace
	}
	return q.complete(info, values)
}

// complete reads what depends on the verb.
func (q *Query) complete(info *request.RequestInfo, values Params) *Query {
	switch q.Verb {
	case "get":
		q.Name = info.Name
		return q
	case "list", "watch":
	default:
		return nil
	}
	if values.isTrue("watch") != (q.Verb == "watch") || watchInPath(info) {
		return nil
	}
	if limit := values.Get("limit"); limit != "" {
		n, err := strconv.ParseInt(limit, 10, 64)
		if err != nil || n < 0 {
			return nil
		}
		q.limit = n
	}
	q.Bookmarks = values.isTrue("allowWatchBookmarks")
	q.InitialEvents = values.isTrue("sendInitialEvents")
	if q.Verb == "watch" && values.Has("sendInitialEvents") && !q.InitialEvents && !versions.Valid(q.Version) {
		return nil // from whatever version it is, without what was there: there is nothing to feed a view from
	}
	if seconds := values.Get("timeoutSeconds"); seconds != "" {
		n, err := strconv.ParseInt(seconds, 10, 32)
		if err != nil || n < 0 {
			return nil
		}
		q.Timeout = time.Duration(n) * time.Second
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
func (p Params) isTrue(name string) bool {
	if !p.Has(name) {
		return false
	}
	switch strings.ToLower(p.Get(name)) {
	case "false", "0":
		return false
	}
	return true
}

// Consistent reports whether an answer shows the newest state there is, rather
// than one that an apiserver remembers.
func (q *Query) Consistent() bool {
	return q.Version == "" && q.ContinueToken == "" &&
		(q.VersionMatch == "" || q.VersionMatch == string(metav1.ResourceVersionMatchNotOlderThan))
}

// Key is that of the view in a representation.
func (q *Query) Key(r negotiation.Representation) Key {
	k := Key{
		User: q.User, Group: q.Resource.Group, Version: q.Resource.Version, Resource: q.Resource.Resource,
		Representation: r.String(),
	}
	if q.Verb == "get" {
		k.Single = true
		return k
	}
	k.Namespace, k.Labels, k.Fields = q.Namespace, q.Labels, q.Fields
	return k
}

// String is for logs.
func (q *Query) String() string {
	s := q.Verb + " " + q.Resource.GroupResource().String()
	if q.Namespace != "" {
		s += " in " + q.Namespace
	}
	if q.Name != "" {
		s += " " + q.Name
	}
	if q.Fields != "" {
		s += " where " + q.Fields
	}
	if q.Labels != "" {
		s += " labelled " + q.Labels
	}
	return s
}

// SplitMember is the reverse of MemberName.
func SplitMember(member string) (namespace, name string) {
	if namespace, name, ok := strings.Cut(member, "/"); ok {
		return namespace, name
	}
	return "", member
}

// MemberName is how objects are called in views: "namespace/name", or "name".
func MemberName(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// UserResource is the user and resource that a query is about.
func (q *Query) UserResource() UserResource { return UserResource{q.User, q.Resource} }

// Member is what the object that a query names is called in views.
func (q *Query) Member() string { return MemberName(q.Namespace, q.Name) }
