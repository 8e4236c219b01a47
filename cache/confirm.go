package cache

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/edgehub-io/edgehub/cache/confirm"
	"github.com/edgehub-io/edgehub/cache/pause"
	"github.com/edgehub-io/edgehub/cache/review"
)

// confirm asks the apiservers again whose the known tokens are, and what the node was told yes
// to, until ctx ends. See package confirm.
func (w *writes) confirm(ctx context.Context) {
	w.takeTurns(ctx, confirm.Pause, func(since time.Time) bool {
		ofToken := w.cache.tokens.Confirm(ctx, since)
		ofReview := w.persisted.Load().reviews.Confirm(since, func(q *review.Question) ([]byte, string, error) { return w.postReview(ctx, q) })
		return ofToken || ofReview
	})
}

// takeTurns calls turn again and again until ctx ends, after a pause while it returns true: something was asked
// for. It begins when an apiserver has answered the node: before, a hub that has just started cannot know whether
// the cloud is there.
func (w *writes) takeTurns(ctx context.Context, between time.Duration, turn func(since time.Time) bool) {
	select {
	case <-w.answered:
	case <-ctx.Done():
		return
	}
	since, wait := time.Now(), confirm.Idle
	for pause.Sleep(ctx, wait/2+pause.Jitter(wait)) {
		wait = confirm.Idle
		if turn(since) {
			wait = between
		}
	}
}

// postReview posts a review as the node.
func (w *writes) postReview(ctx context.Context, q *review.Question) (answer []byte, contentType string, err error) {
	code, answer, contentType, err := w.post(w.cache.opts.AsNode(ctx), q, "")
	if err == nil && code != http.StatusCreated {
		err = fmt.Errorf("post a review of %s again: the apiserver answered %d", q.Resource.Resource, code)
	}
	return answer, contentType, err
}

// post posts a review with the credentials of ctx and of an Authorization header, which may be empty.
func (w *writes) post(ctx context.Context, q *review.Question, authorization string) (code int, answer []byte, contentType string, err error) {
	const timeout, most = 10 * time.Second, 256 << 10
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	of := q.Resource
	path := "/apis/" + of.GroupVersion().String() + "/" + of.Resource
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{
		IsResourceRequest: true, Path: path, Verb: "create", APIPrefix: "apis", APIGroup: of.Group, APIVersion: of.Version, Resource: of.Resource,
	})
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://apiserver"+path, bytes.NewReader(q.Body))
	if err != nil {
		return 0, nil, "", err
	}
	r.Header.Set("Content-Type", q.Type)
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "edgehub")
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	res, err := w.cache.up.RoundTrip(r)
	if err != nil {
		return 0, nil, "", err
	}
	defer res.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(res.Body, most))
	return res.StatusCode, answer, res.Header.Get("Content-Type"), err
}
