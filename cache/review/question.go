package review

import (
	"encoding/json"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/wire"
)

const (
	kindToken  = "TokenReview"
	kindAccess = "SubjectAccessReview"
)

// kinds are the kinds of reviews that are answered, by the resource that they are posted to.
//
//nolint:gochecknoglobals // a table
var kinds = map[schema.GroupVersionResource]string{
	authenticationv1.SchemeGroupVersion.WithResource("tokenreviews"):        kindToken,
	authorizationv1.SchemeGroupVersion.WithResource("subjectaccessreviews"): kindAccess,
}

// Wanted reports whether reviews that are posted to a resource are answered.
func Wanted(resource schema.GroupVersionResource) bool { return kinds[resource] != "" }

// question is a review, with or without its answer.
type question struct {
	object runtime.Object
	kind   string
	token  string   // under review; "" in a SubjectAccessReview
	parts  []string // all that decides the answer

	// Of the answer:
	user     string // whom it is about
	positive bool   // authenticated or allowed
	status   any    // points to object's status
	// deny replaces the status by a no.
	deny func(reason string)
}

// decode reads a review, or the answer to one. Its errors do not quote the body, which may
// contain a token.
func decode(resource schema.GroupVersionResource, body []byte, contentType string) (*question, error) {
	kind := kinds[resource]
	object, err := convert.DecodeBody(contentType, body, wire.TypeMeta{APIVersion: resource.GroupVersion().String(), Kind: kind})
	if err != nil {
		return nil, fmt.Errorf("read a %s: %w", kind, wire.ErrMalformed)
	}
	var q *question
	switch r := object.(type) {
	case *authenticationv1.TokenReview:
		q = tokenQuestion(r)
	case *authorizationv1.SubjectAccessReview:
		if q, err = accessQuestion(r); err != nil {
			return nil, fmt.Errorf("read a %s: %w", kind, err)
		}
	}
	if q == nil || q.kind != kind {
		return nil, fmt.Errorf("read a %s: it is something else: %w", kind, wire.ErrMalformed)
	}
	object.GetObjectKind().SetGroupVersionKind(resource.GroupVersion().WithKind(kind))
	return q, nil
}

func tokenQuestion(r *authenticationv1.TokenReview) *question {
	return &question{
		object: r, kind: kindToken, token: r.Spec.Token, parts: append([]string{kindToken, r.Spec.Token}, sorted(r.Spec.Audiences)...),
		user: r.Status.User.Username, positive: r.Status.Authenticated && r.Status.Error == "", status: &r.Status,
		deny: func(reason string) { r.Status = authenticationv1.TokenReviewStatus{Error: reason} },
	}
}

func accessQuestion(r *authorizationv1.SubjectAccessReview) (*question, error) {
	spec := r.Spec
	spec.Groups = sorted(spec.Groups)
	text, err := json.Marshal(spec)
	return &question{
		object: r, kind: kindAccess, parts: []string{kindAccess, string(text)},
		user: r.Spec.User, positive: r.Status.Allowed && !r.Status.Denied, status: &r.Status,
		deny: func(reason string) { r.Status = authorizationv1.SubjectAccessReviewStatus{Reason: reason} },
	}, err
}

// sorted returns the elements of a set, audiences or groups, in order.
func sorted(set []string) []string {
	set = slices.Clone(set)
	slices.Sort(set)
	return slices.Compact(set)
}

// answer encodes the review with a stored status, or if that is nil with a no and its reason.
func (q *question) answer(status []byte, reason, accept string) (body []byte, contentType string, err error) {
	q.deny(reason)
	if status != nil {
		q.deny("")
		if err := json.Unmarshal(status, q.status); err != nil {
			return nil, "", err
		}
	}
	contentType, body, err = convert.EncodeBody(accept, q.object)
	return body, contentType, err
}
