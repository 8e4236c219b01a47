package repeat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/quota"
	"github.com/edgehub-io/edgehub/cache/view"
)

// rights has the apiservers asked again what users other than the node may read: a reader that never asks again
// learns of no 403. A question is a SelfSubjectAccessReview with the user's newest token in memory. It is for one
// goroutine at a time.
//
// The node's own rights are not asked for. Its authorizer derives them from the pods it has, apiservers that
// have just started know none of these, and a Secret that no pod names is dropped by package cache.
type rights struct {
	answers *Answers
	asked   map[view.Right]lastAsked // of what can be asked for
}

// lastAsked is when an apiserver was last asked for a right.
type lastAsked struct {
	at time.Time
	no bool // and that it has said no
}

// turn asks for one right, and reports whether there was one to ask for. A right that was asked for and not
// refused stays, whatever the answer; one that waits for too long, since too many do, is dropped.
func (r *rights) turn(ctx context.Context, turns quota.Turns) bool {
	tokens, now := r.answers.opts.Users.Usable(), time.Now()
	next, ok, forget := quota.Next(turns, r.due(tokens, now), now)
	for _, one := range forget {
		r.answers.opts.Views.Unconfirmed(one)
	}
	if ok {
		r.ask(ctx, next, tokens[next.Key.User], now)
	}
	return ok
}

// due returns the rights that can be asked for, except those that were confirmed not long ago.
func (r *rights) due(tokens map[string]*identity.Token, now time.Time) []quota.Asked[view.Right] {
	before := r.asked
	r.asked = map[view.Right]lastAsked{}
	var items []quota.Asked[view.Right]
	for one, confirmed := range r.answers.opts.Views.Rights() {
		if tokens[one.Key.User] == nil {
			continue // its time to wait begins when there is a token
		}
		last, ok := before[one]
		if !ok {
			last.at = now.Add(-After)
		}
		if confirmed.After(last.at) {
			last = lastAsked{at: confirmed}
		}
		r.asked[one] = last
		item := quota.Asked[view.Right]{Key: one, User: one.Key.User, Last: last.at, Wanted: true}
		if last.no {
			item.Last = last.at.Add(Again - After)
		}
		if !last.at.Equal(confirmed) || now.Sub(confirmed) >= After { // what readers do themselves takes no turns
			items = append(items, item)
		}
	}
	return items
}

// ask asks for one right of a user. If no apiserver answers, all of the user's wait as if they had been asked for:
// an apiserver in trouble gets one question of each user in that time, and other users' go on.
func (r *rights) ask(ctx context.Context, one view.Right, token *identity.Token, now time.Time) {
	denied := r.asked[one].no
	said, err := r.mayRead(ctx, one, token)
	if err != nil {
		r.answers.opts.Logger.Debug("what a user may read could not be asked for", "user", identity.Readable(one.Key.User), "err", err)
		for other := range r.asked {
			if other.Key.User == one.Key.User {
				r.asked[other] = lastAsked{now, r.asked[other].no}
			}
		}
		return
	}
	r.asked[one] = lastAsked{now, said == no}
	if said != no || !denied || r.answers.opts.Views.Confirmed(one).After(now) {
		return
	}
	r.answers.opts.Logger.Info("a user may not read this any more: without the cloud it is not served either",
		"user", identity.Readable(one.Key.User), "read", one.String())
	r.answers.opts.Views.Revoke(one)
}

// verdict is an answer to a review.
type verdict uint8

const (
	unknown verdict = iota // an authorizer could not decide
	yes
	no
)

// mayRead asks whether a user may still read something. A list may be read if the user may list or watch it: a
// watch shows the same. The error means that no apiserver has answered.
func (r *rights) mayRead(ctx context.Context, one view.Right, token *identity.Token) (said verdict, err error) {
	verbs := []string{"list", "watch"}
	if one.Member != "" {
		verbs = []string{"get"}
	}
	for _, verb := range verbs {
		if said, err = r.review(ctx, attributesOf(one, verb), token); err != nil || said != no {
			return said, err
		}
	}
	return no, nil
}

// attributesOf returns what an apiserver authorizes in a request that uses the right.
func attributesOf(one view.Right, verb string) *authorizationv1.ResourceAttributes {
	k := &one.Key
	a := &authorizationv1.ResourceAttributes{Verb: verb, Group: k.Group, Version: k.Version, Resource: k.Resource, Namespace: k.Namespace}
	if one.Member != "" {
		a.Namespace, a.Name = query.SplitMember(one.Member)
		if k.Group == "" && k.Resource == "namespaces" {
			a.Namespace = a.Name
		}
		return a
	}
	if name := k.Name(); len(content.IsPathSegmentName(name)) == 0 {
		a.Name = name
	}
	if k.Fields != "" {
		a.FieldSelector = &authorizationv1.FieldSelectorAttributes{RawSelector: k.Fields}
	}
	if k.Labels != "" {
		a.LabelSelector = &authorizationv1.LabelSelectorAttributes{RawSelector: k.Labels}
	}
	return a
}

// errNotReviewed is returned if an apiserver does not answer a review.
var errNotReviewed = errors.New("the apiserver did not answer a SelfSubjectAccessReview")

// review posts a SelfSubjectAccessReview with a token.
func (r *rights) review(ctx context.Context, a *authorizationv1.ResourceAttributes, token *identity.Token) (verdict, error) {
	gv := authorizationv1.SchemeGroupVersion
	access := &authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: gv.String(), Kind: "SelfSubjectAccessReview"},
		Spec:     authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: a},
	}
	body, err := json.Marshal(access)
	if err != nil {
		return unknown, err
	}
	code, answer, err := r.answers.post(ctx, gv.WithResource("selfsubjectaccessreviews"), token.Authorization(), "application/json", body)
	if code == http.StatusUnauthorized {
		r.answers.opts.Users.Unauthorized(ctx, token)
	}
	switch {
	case err != nil:
		return unknown, err
	case code != http.StatusCreated:
		return unknown, fmt.Errorf("%w: %d %s", errNotReviewed, code, http.StatusText(code))
	}
	access.Status = authorizationv1.SubjectAccessReviewStatus{}
	if err := json.Unmarshal(answer, access); err != nil {
		return unknown, fmt.Errorf("%w that can be read", errNotReviewed)
	}
	switch s := &access.Status; {
	case s.Allowed && !s.Denied:
		return yes, nil
	case s.EvaluationError != "":
		return unknown, nil
	}
	return no, nil
}
