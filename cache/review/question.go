package review

import (
	"encoding/json"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// kinds are the reviews that are answered, by the resource that they are posted to.
//
//nolint:gochecknoglobals // a table
var kinds = map[schema.GroupVersionResource]string{
	authenticationv1.SchemeGroupVersion.WithResource("tokenreviews"):        kindToken,
	authorizationv1.SchemeGroupVersion.WithResource("subjectaccessreviews"): kindAccess,
}

const (
	kindToken  = "TokenReview"
	kindAccess = "SubjectAccessReview"
)

// Wanted reports whether reviews that are posted to this resource are answered.
func Wanted(resource schema.GroupVersionResource) bool { return kinds[resource] != "" }

// question is a review, read by an apiserver's rules.
type question struct {
	object runtime.Object // *TokenReview or *SubjectAccessReview
}

// decode never says what stands in the body: that may be a token.
func decode(resource schema.GroupVersionResource, body []byte, contentType string) (question, error) {
	kind := kinds[resource]
	object, err := convert.DecodeBody(contentType, body, wire.TypeMeta{APIVersion: resource.GroupVersion().String(), Kind: kind})
	if err != nil {
		return question{}, fmt.Errorf("read a %s: %w", kind, wire.ErrMalformed)
	}
	switch object.(type) {
	case *authenticationv1.TokenReview:
		if kind == kindToken {
			return question{object}, nil
		}
	case *authorizationv1.SubjectAccessReview:
		if kind == kindAccess {
			return question{object}, nil
		}
	}
	return question{}, fmt.Errorf("read a %s: it is something else: %w", kind, wire.ErrMalformed)
}

// parts is all that decides the answer. Audiences and groups are sets.
func (q *question) parts() ([]string, error) {
	switch r := q.object.(type) {
	case *authenticationv1.TokenReview:
		return append([]string{kindToken, r.Spec.Token}, set(r.Spec.Audiences)...), nil
	case *authorizationv1.SubjectAccessReview:
		spec := r.Spec
		spec.Groups = set(spec.Groups)
		text, err := json.Marshal(spec)
		if err != nil {
			return nil, fmt.Errorf("read a %s: %w", kindAccess, err)
		}
		return []string{kindAccess, string(text)}, nil
	}
	return nil, wire.ErrMalformed
}

func set(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names)
}

// user is whom a positive answer is about.
func (q *question) user() string {
	switch r := q.object.(type) {
	case *authenticationv1.TokenReview:
		return r.Status.User.Username
	case *authorizationv1.SubjectAccessReview:
		return r.Spec.User
	}
	return ""
}

// positive reports what an apiserver has said.
func (q *question) positive() bool {
	switch r := q.object.(type) {
	case *authenticationv1.TokenReview:
		return r.Status.Authenticated && r.Status.Error == ""
	case *authorizationv1.SubjectAccessReview:
		return r.Status.Allowed && !r.Status.Denied
	}
	return false
}

// status is the answer as JSON. It holds nothing of the question.
func (q *question) status() ([]byte, error) {
	switch r := q.object.(type) {
	case *authenticationv1.TokenReview:
		return json.Marshal(r.Status)
	case *authorizationv1.SubjectAccessReview:
		return json.Marshal(r.Status)
	}
	return nil, wire.ErrMalformed
}

// answer encodes the question with a status; without one, with a no and its reason.
func (q *question) answer(status []byte, reason, accept string) (body []byte, contentType string, err error) {
	switch r := q.object.(type) {
	case *authenticationv1.TokenReview:
		r.TypeMeta = metav1.TypeMeta{APIVersion: authenticationv1.SchemeGroupVersion.String(), Kind: kindToken}
		r.Status = authenticationv1.TokenReviewStatus{Error: reason}
		err = fill(status, &r.Status)
	case *authorizationv1.SubjectAccessReview:
		r.TypeMeta = metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: kindAccess}
		r.Status = authorizationv1.SubjectAccessReviewStatus{Reason: reason}
		err = fill(status, &r.Status)
	}
	if err != nil {
		return nil, "", err
	}
	contentType, body, err = convert.EncodeBody(accept, q.object)
	return body, contentType, err
}

func fill[T any](status []byte, into *T) error {
	if status == nil {
		return nil
	}
	*into = *new(T)
	return json.Unmarshal(status, into)
}
