package repeat

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/quota"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// reviews are what an apiserver has answered with yes to TokenReviews and SubjectAccessReviews of the node.
// An entry's user is the reviewed one, without a UID, which does not matter for the quota; it was last used when
// the apiserver last gave the answer to the node; its group is the key of the token under review, and empty in a
// SubjectAccessReview.
type reviews struct{ *kept }

// An answer has some 500 bytes, a question, which is in memory, up to 2,000, and a user of a kubelet's API needs two
// to ten. What is confirmed again and again, as for a scraper of metrics, is written 24 times within its TTL.
func newReviews(a *Answers) *reviews {
	return &reviews{&kept{
		answers: a, name: "review", entries: map[string]*entry{}, bounds: quota.Bounds{Count: 1000, Bytes: 4 << 20},
		writeEvery: a.opts.TTL / 24, lasts: a.opts.TTL,
	}}
}

const kindToken, kindAccess = "TokenReview", "SubjectAccessReview"

// kinds are the kinds of reviews that are answered, by the resource that they are posted to.
var kinds = map[schema.GroupVersionResource]string{
	authenticationv1.SchemeGroupVersion.WithResource("tokenreviews"):        kindToken,
	authorizationv1.SchemeGroupVersion.WithResource("subjectaccessreviews"): kindAccess,
}

// wants: other users get no answers. Those to the node are not for them.
func (*reviews) wants(r *Request) bool {
	i := r.Info
	return r.HTTP.Method == http.MethodPost && r.User == quota.Node &&
		i.Namespace == "" && i.Name == "" && i.Subresource == "" && kinds[resourceOf(r)] != ""
}

func resourceOf(r *Request) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.Info.APIGroup, Version: r.Info.APIVersion, Resource: r.Info.Resource}
}

// keep stores a yes, and deletes the stored one at a no.
func (p *reviews) keep(r *Request, res *Response) error {
	if res.Code != http.StatusCreated {
		return nil
	}
	asked, q, err := questionOf(r)
	if err != nil {
		return err
	}
	answered, err := readReview(asked.of, res.Body, res.Header.Get("Content-Type"))
	if err != nil {
		return err
	}
	p.answers.mu.Lock()
	defer p.answers.mu.Unlock()
	return p.keepLocked(p.answers.table.Key(q.parts...), answered, entry{record: record{Group: p.tokenKey(q.token)}, question: asked})
}

// keepLocked is keep for the answer with a key. The entry is without what the answer says.
func (p *reviews) keepLocked(key string, answered *review, e entry) error {
	if !answered.positive {
		p.delete(key)
		return nil
	}
	status, err := json.Marshal(answered.status)
	if err != nil {
		return err
	}
	e.User, e.asked = identity.User{Name: answered.user}.Key(), time.Now()
	p.put(key, e, status)
	return nil
}

// tokenKey returns what is stored of a token.
func (p *reviews) tokenKey(token string) string {
	if token == "" {
		return ""
	}
	return p.answers.table.Key(kindToken, token)
}

// answer returns the stored yes, or else a no with its reason.
func (p *reviews) answer(r *Request) (*Response, error) {
	_, q, err := questionOf(r)
	if err != nil {
		return nil, err
	}
	status, why := p.status(q), ""
	switch {
	case status == nil:
		why = p.answers.opts.Denial()
	case identity.Expired(q.token, p.answers.opts.Grace, time.Now()):
		status, why = nil, "edgehub: "+identity.ErrExpired.Error()
	}
	if err := q.set(status, why); err != nil {
		return nil, err
	}
	return created(r, q.object)
}

// status returns the stored status, or nil.
func (p *reviews) status(q *review) []byte {
	p.answers.mu.Lock()
	defer p.answers.mu.Unlock()
	p.evict()
	_, status, ok := p.get(p.answers.table.Key(q.parts...))
	if !ok {
		return nil
	}
	p.answers.mark(min(p.writeEvery, time.Minute))
	return status
}

// Refused forgets that a token is anybody's, for whatever audiences, and, if none of the user's others is known here,
// what the user may do.
func (a *Answers) Refused(token, userName string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, user := a.reviews, identity.User{Name: userName}.Key()
	refused := p.tokenKey(token)
	var of, rights []string
	others := false
	for key, e := range p.entries {
		switch {
		case e.Group == refused:
			of = append(of, key)
		case e.User == user && e.Group == "":
			rights = append(rights, key)
		case e.User == user:
			others = true
		}
	}
	if others {
		rights = nil
	}
	p.delete(append(of, rights...)...)
}

// question is a review as it was posted.
type question struct {
	of          schema.GroupVersionResource
	body        []byte
	contentType string
}

func questionOf(r *Request) (*question, *review, error) {
	body, err := r.Body()
	if err != nil {
		return nil, nil, err
	}
	q := &question{resourceOf(r), body, r.HTTP.Header.Get("Content-Type")}
	parsed, err := readReview(q.of, q.body, q.contentType)
	return q, parsed, err
}

// review is a review, with or without its answer.
type review struct {
	object runtime.Object
	token  string   // under review; "" in a SubjectAccessReview
	parts  []string // all that decides the answer

	// Of the answer:
	user     string // whom it is about
	positive bool   // authenticated or allowed
	status   any    // points to object's status
	// deny replaces the status by a no.
	deny func(reason string)
}

// set replaces the status by a stored one, or if that is nil by a no and its reason.
func (q *review) set(status []byte, why string) error {
	q.deny(why)
	if status == nil {
		return nil
	}
	return json.Unmarshal(status, q.status)
}

// readReview reads a review that was posted to a resource, or the answer to one.
func readReview(of schema.GroupVersionResource, body []byte, contentType string) (*review, error) {
	kind := wire.TypeMeta{APIVersion: of.GroupVersion().String(), Kind: kinds[of]}
	if kind.Kind == kindToken {
		r, err := decode[*authenticationv1.TokenReview](kind, body, contentType)
		if err != nil {
			return nil, err
		}
		return ofToken(r), nil
	}
	r, err := decode[*authorizationv1.SubjectAccessReview](kind, body, contentType)
	if err != nil {
		return nil, err
	}
	return ofAccess(r)
}

func ofToken(r *authenticationv1.TokenReview) *review {
	return &review{
		object: r, token: r.Spec.Token, parts: append([]string{kindToken, r.Spec.Token}, sorted(r.Spec.Audiences)...),
		user: r.Status.User.Username, positive: r.Status.Authenticated && r.Status.Error == "", status: &r.Status,
		deny: func(reason string) { r.Status = authenticationv1.TokenReviewStatus{Error: reason} },
	}
}

func ofAccess(r *authorizationv1.SubjectAccessReview) (*review, error) {
	spec := r.Spec
	spec.Groups = sorted(spec.Groups)
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("read a %s: %w", kindAccess, err)
	}
	return &review{
		object: r, parts: []string{kindAccess, string(text)},
		user: r.Spec.User, positive: r.Status.Allowed && !r.Status.Denied, status: &r.Status,
		deny: func(reason string) { r.Status = authorizationv1.SubjectAccessReviewStatus{Reason: reason} },
	}, nil
}
