package identity

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// maxReview bounds the answer to a review, in bytes. A user may have many groups and extra
// fields.
const maxReview = 256 << 10

var (
	// errRefused is returned if an apiserver does not accept a token.
	errRefused = errors.New("the apiserver refuses the token")
	// errNobody is returned if an apiserver names no user.
	errNobody = errors.New("the apiserver names no user for the token")
	// errNotServed is returned if the token's user may not create SelfSubjectReviews, or the
	// apiserver does not serve them.
	errNotServed = errors.New("the apiserver does not let the token's user create a SelfSubjectReview")
)

// review asks an apiserver for the user of a token. Its error is errRefused or errNobody if
// the token has none; after any other error the user is unknown.
func (t *Tokens) review(ctx context.Context, secret string) (User, error) {
	u, err := t.reviewSelf(ctx, secret)
	if !errors.Is(err, errNotServed) {
		return u, err
	}
	u, asNode := t.reviewAsNode(ctx, secret)
	if asNode != nil {
		return User{}, fmt.Errorf("%w, and: %w", err, asNode)
	}
	return u, nil
}

// reviewSelf creates a SelfSubjectReview with the token and no other credentials.
func (t *Tokens) reviewSelf(ctx context.Context, secret string) (User, error) {
	review := authenticationv1.SelfSubjectReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authenticationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectReview"},
	}
	code, err := t.create(ctx, "selfsubjectreviews", "Bearer "+secret, &review)
	switch {
	case err != nil:
		return User{}, err
	case code == http.StatusUnauthorized:
		return User{}, errRefused
	case code == http.StatusForbidden, code == http.StatusNotFound, code == http.StatusMethodNotAllowed:
		return User{}, errNotServed
	case code != http.StatusCreated:
		return User{}, fmt.Errorf("SelfSubjectReview: the apiserver answered %d %s", code, http.StatusText(code))
	}
	return named(&review.Status.UserInfo)
}

// reviewAsNode creates a TokenReview as the node, which the role system:node allows.
func (t *Tokens) reviewAsNode(ctx context.Context, secret string) (User, error) {
	review := authenticationv1.TokenReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authenticationv1.SchemeGroupVersion.String(), Kind: "TokenReview"},
		Spec:     authenticationv1.TokenReviewSpec{Token: secret},
	}
	code, err := t.create(t.opts.AsNode(ctx), "tokenreviews", "", &review)
	switch {
	case err != nil:
		return User{}, err
	case code != http.StatusCreated:
		return User{}, fmt.Errorf("TokenReview: the apiserver answered %d %s", code, http.StatusText(code))
	case !review.Status.Authenticated:
		return User{}, errRefused
	}
	return named(&review.Status.User)
}

func named(info *authenticationv1.UserInfo) (User, error) {
	u := User{Name: info.Username, UID: info.UID}
	if !known(u, info.Groups) {
		return User{}, errNobody
	}
	return u, nil
}

// create sends a review, and decodes the answer into it if it is 201. Its errors quote neither
// the request nor the answer, which contain the token.
func (t *Tokens) create(ctx context.Context, resource, authorization string, review any) (code int, err error) {
	body, err := json.Marshal(review)
	if err != nil {
		return 0, errors.New("a review cannot be written")
	}
	of := authenticationv1.SchemeGroupVersion.WithResource(resource)
	code, answer, err := Post(ctx, t.opts.Upstream, of, authorization, "application/json", body)
	if err != nil {
		return 0, fmt.Errorf("review a token: %w", err)
	}
	if code == http.StatusCreated && json.Unmarshal(answer, review) != nil {
		return 0, errors.New("review a token: the apiserver's answer cannot be read")
	}
	return code, nil
}

// Post posts a review to a resource, with the credentials of ctx and of an Authorization header, which may be empty.
// The answer is in JSON. Its errors quote neither the request nor the answer, which may contain a token.
func Post(ctx context.Context, up http.RoundTripper, of schema.GroupVersionResource, authorization, contentType string, body []byte) (code int, answer []byte, err error) {
	path := "/apis/" + of.GroupVersion().String() + "/" + of.Resource
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{
		IsResourceRequest: true, Path: path, Verb: "create", APIPrefix: "apis", APIGroup: of.Group, APIVersion: of.Version, Resource: of.Resource,
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://apiserver"+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, errors.New("a review cannot be sent")
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "edgehub")
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	res, err := up.RoundTrip(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(res.Body, maxReview))
	return res.StatusCode, answer, err
}
