// Package query determines what a request asks for: its query, and the key of the view that
// answers it. It keeps no state.
package query

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// Query is the part of a request that matters for the cache.
type Query struct {
	User      string // user key of the caller; see NodeUser
	Verb      string // "get", "list" or "watch"
	Resource  schema.GroupVersionResource
	Namespace string
	Name      string // of "get"
	Labels    string // label selector, as sent
	Fields    string // field selector, as sent
	Accept    string // the first Accept header: apiservers ignore further ones

	// Of lists and watches.
	Version       string // resourceVersion
	VersionMatch  string // resourceVersionMatch
	ContinueToken string
	Bookmarks     bool          // allowWatchBookmarks
	InitialEvents bool          // sendInitialEvents
	Timeout       time.Duration // of a watch; 0 lets the server choose
}

// Params are the query parameters of a request, parsed like an apiserver parses them
// (url.URL.Query): malformed pairs are left out.
type Params struct {
	url.Values
	// Broken is set when a pair was left out. An apiserver built with another version of Go
	// may parse it differently, so the answer is not kept.
	Broken bool
}

// ParamsOf parses the query parameters of a request.
func ParamsOf(r *http.Request) Params {
	values, err := url.ParseQuery(r.URL.RawQuery)
	return Params{values, err != nil}
}

// parameters are the parameters of GET, LIST and WATCH that the cache understands. Answers
// to requests with others are passed on and not kept: an apiserver ignores parameters that
// it does not know, but a newer one may know them (shardSelector, since 1.36), and its
// answer is then not the one to the rest of the query.
var parameters = map[string]bool{
	"labelSelector": true, "fieldSelector": true, "watch": true,
	"resourceVersion": true, "resourceVersionMatch": true,
	"limit": true, "continue": true,
	"allowWatchBookmarks": true, "sendInitialEvents": true,
	"timeout": true, "timeoutSeconds": true, "pretty": true,
}

const (
	// maxSubdomain and maxLabel are the longest names that Kubernetes allows.
	maxSubdomain = validation.DNS1123SubdomainMaxLength
	maxLabel     = validation.DNS1123LabelMaxLength
	// MaxSelectors bounds the selectors of a list or watch, in bytes. Answers to longer ones
	// are not kept.
	MaxSelectors = 4 << 10
)

// Nameable reports whether objects with the names in a request can exist. Names stay in
// memory and on disk, and a URL can hold a megabyte of them.
func Nameable(info *request.RequestInfo) bool {
	return len(info.APIGroup) <= maxSubdomain && len(info.APIVersion) <= maxLabel && len(info.Resource) <= maxSubdomain &&
		len(info.Namespace) <= maxLabel && len(info.Name) <= maxSubdomain
}

// Of returns the query of a GET request, or nil if the cache cannot serve it: it is not for
// a resource, or for a subresource, or has parameters that the cache does not understand.
func Of(r *http.Request, values Params, info *request.RequestInfo, user string) *Query {
	if r.Method != http.MethodGet || info == nil || !info.IsResourceRequest || info.Subresource != "" || values.Broken {
		return nil
	}
	for name := range values.Values { // of repeated ones, the first counts, as for an apiserver
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
	if info.Resource != "namespaces" { // for these, requestinfo sets both to the name
		q.Namespace = info.Namespace
	}
	switch q.Verb {
	case "get":
		q.Name = info.Name
		return q
	case "list", "watch":
		return q.complete(info, values)
	}
	return nil
}

// complete reads what only lists and watches have.
func (q *Query) complete(info *request.RequestInfo, values Params) *Query {
	if values.isTrue("watch") != (q.Verb == "watch") || watchInPath(info) {
		return nil
	}
	q.Bookmarks = values.isTrue("allowWatchBookmarks")
	q.InitialEvents = values.isTrue("sendInitialEvents")
	if q.Verb == "watch" && values.Has("sendInitialEvents") && !q.InitialEvents && !versions.Valid(q.Version) {
		return nil // without initial events, and from an unknown version: it cannot feed a view
	}
	_, validLimit := values.number("limit", 64)
	seconds, validTimeout := values.number("timeoutSeconds", 32)
	if !validLimit || !validTimeout {
		return nil
	}
	q.Timeout = time.Duration(seconds) * time.Second
	return q
}

// watchInPath reports whether the path makes the request a watch, /api/v1/watch/pods, as was
// usual before Kubernetes 1.11. A namespace may be called watch, too.
func watchInPath(info *request.RequestInfo) bool {
	verb := 2 // /api/VERSION/VERB
	if info.APIPrefix != "api" {
		verb = 3 // /apis/GROUP/VERSION/VERB
	}
	parts := strings.Split(strings.Trim(info.Path, "/"), "/")
	return len(parts) > verb && parts[verb] == "watch"
}

// isTrue parses a boolean parameter like an apiserver: any value but false and 0 is true,
// also the empty one.
func (p Params) isTrue(name string) (value bool) {
	values := p.Values[name]
	_ = runtime.Convert_Slice_string_To_bool(&values, &value, nil) // it never fails
	return value
}

// number parses a parameter of so many bits that must not be negative. A missing one is 0.
func (p Params) number(name string, bits int) (n int64, ok bool) {
	text := p.Get(name)
	if text == "" {
		return 0, true
	}
	n, err := strconv.ParseInt(text, 10, bits)
	return n, err == nil && n >= 0
}

// Consistent reports whether the query must be answered with the newest state, rather than
// with one that an apiserver has in memory.
func (q *Query) Consistent() bool {
	return q.Version == "" && q.ContinueToken == "" &&
		(q.VersionMatch == "" || q.VersionMatch == string(metav1.ResourceVersionMatchNotOlderThan))
}

// AnyVersion reports whether the query is a GET or LIST that may be answered with any state that was
// once true: resourceVersion=0.
func (q *Query) AnyVersion() bool {
	return q.Verb != "watch" && q.Version == "0" && q.ContinueToken == "" && !q.InitialEvents &&
		(q.VersionMatch == "" || q.VersionMatch == string(metav1.ResourceVersionMatchNotOlderThan))
}

// Key returns the key of the view that answers the query in a representation.
func (q *Query) Key(r wire.Representation) Key {
	k := Key{
		User: q.User, Group: q.Resource.Group, Version: q.Resource.Version, Resource: q.Resource.Resource,
		Namespace: q.Namespace, Labels: q.Labels, Fields: q.Fields, Metadata: r.Metadata,
	}
	if r.Metadata == "" && r.Cacheable() && !convert.KnowsAll(q.Resource.GroupVersion()) {
		k.Encoding = r.Encoding.String()
	}
	return k
}

// UserResource returns the user and resource of the query.
func (q *Query) UserResource() UserResource { return UserResource{q.User, q.Resource} }

// Member returns the name in views of the object that the query reads.
func (q *Query) Member() string { return MemberName(q.Namespace, q.Name) }

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
