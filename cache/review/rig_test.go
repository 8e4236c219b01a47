package review_test

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/review"
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/table"
	"github.com/edgehub-io/edgehub/cache/wire"
)

const (
	kubelet  = "application/vnd.kubernetes.protobuf,application/json"
	protobuf = "application/vnd.kubernetes.protobuf"
	asJSON   = "application/json"
	secret   = "eyJhbGciOi.the-secret-part.of-a-token"
	why      = "edgehub: the cloud cannot be reached"
)

var (
	tokens = authenticationv1.SchemeGroupVersion.WithResource("tokenreviews")
	access = authorizationv1.SchemeGroupVersion.WithResource("subjectaccessreviews")
)

// memory is a table.Store. It outlives what is opened on it, as a disk does.
type memory map[string][]byte // by table/key

func (m memory) Get(table, key string) ([]byte, error) {
	if value := m[table+"/"+key]; value != nil {
		return bytes.Clone(value), nil
	}
	return nil, store.ErrNotFound
}

func (m memory) Keys(table string) (keys []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if key, ok := strings.CutPrefix(name, table+"/"); ok {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

func (m memory) Put(pairs ...store.Pair) error {
	for _, p := range pairs {
		if m[p.Table+"/"+p.Key] = bytes.Clone(p.Value); p.Value == nil {
			delete(m, p.Table+"/"+p.Key)
		}
	}
	return nil
}

func open(tb testing.TB, t table.Store, o review.Options) *review.Reviews {
	tb.Helper()
	k, err := review.Open(t, o)
	if err != nil {
		tb.Fatal(err)
	}
	return k
}

func encode(tb testing.TB, accept string, object runtime.Object) (body []byte, contentType string) {
	tb.Helper()
	contentType, body, err := convert.EncodeBody(accept, object)
	if err != nil {
		tb.Fatal(err)
	}
	return body, contentType
}

// tokenReview returns a question for the user of a token.
func tokenReview(token string, audiences ...string) *authenticationv1.TokenReview {
	return &authenticationv1.TokenReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"},
		Spec:     authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences},
	}
}

func authenticated(r *authenticationv1.TokenReview, user string) *authenticationv1.TokenReview {
	r = r.DeepCopy()
	r.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: r.Spec.Audiences, User: authenticationv1.UserInfo{
		Username: user, UID: "u", Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"e": {"v"}},
	}}
	return r
}

// accessReview returns a question for a user's permission.
func accessReview(user, verb string, groups ...string) *authorizationv1.SubjectAccessReview {
	return &authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SubjectAccessReview"},
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, Groups: groups, Extra: map[string]authorizationv1.ExtraValue{"b": {"1"}, "a": {"2"}},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Version: "v1", Resource: "nodes", Subresource: "proxy", Name: "n"},
		},
	}
}

func allowed(r *authorizationv1.SubjectAccessReview) *authorizationv1.SubjectAccessReview {
	r = r.DeepCopy()
	r.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "RBAC"}
	return r
}

// keep stores an apiserver's answer.
func keep(tb testing.TB, k *review.Reviews, asked, answered runtime.Object) {
	tb.Helper()
	resource := tokens
	if _, ok := asked.(*authorizationv1.SubjectAccessReview); ok {
		resource = access
	}
	request, requestType := encode(tb, protobuf, asked)
	response, responseType := encode(tb, asJSON, answered)
	if err := k.Keep(resource, request, requestType, response, responseType); err != nil {
		tb.Fatal(err)
	}
}

// answerTo returns the answer to a review: "yes" or "no", the user, and the reason.
func answerTo(tb testing.TB, k *review.Reviews, asked runtime.Object, accept string) string {
	tb.Helper()
	resource := tokens
	if _, ok := asked.(*authorizationv1.SubjectAccessReview); ok {
		resource = access
	}
	request, requestType := encode(tb, accept, asked)
	body, contentType, err := k.Answer(resource, request, requestType, accept, why)
	if err != nil {
		tb.Fatal(err)
	}
	object, err := convert.DecodeBody(contentType, body, wire.TypeMeta{})
	if err != nil {
		tb.Fatal(err)
	}
	switch r := object.(type) {
	case *authenticationv1.TokenReview:
		if r.Status.Authenticated {
			return strings.Join([]string{"yes", r.Status.User.Username, r.Status.User.UID, r.Status.User.Groups[0], r.Status.User.Extra["e"][0]}, " ")
		}
		return "no " + r.Status.Error
	case *authorizationv1.SubjectAccessReview:
		if r.Status.Allowed && !r.Status.Denied {
			return "yes " + r.Status.Reason
		}
		return "no " + r.Status.Reason
	}
	tb.Fatalf("%T", object)
	return ""
}
