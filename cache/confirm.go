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
// to, until ctx ends. See package confirm. It begins when one has answered the node: before, a hub
// that has just started cannot know whether the cloud is there.
func (w *writes) confirm(ctx context.Context) {
	select {
	case <-w.answered:
	case <-ctx.Done():
		return
	}
	since, wait := time.Now(), confirm.Idle
	for pause.Sleep(ctx, wait/2+pause.Jitter(wait)) {
		wait = confirm.Idle
		ofToken := w.cache.tokens.Confirm(ctx, since)
		ofReview := w.persisted.Load().reviews.Confirm(since, func(q *review.Question) ([]byte, string, error) { return w.postReview(ctx, q) })
		if ofToken || ofReview {
			wait = confirm.Pause
		}
	}
}

// postReview posts a review as the node.
func (w *writes) postReview(ctx context.Context, q *review.Question) (answer []byte, contentType string, err error) {
	const timeout, most = 10 * time.Second, 256 << 10
	ctx, cancel := context.WithTimeout(w.cache.opts.AsNode(ctx), timeout)
	defer cancel()
	of := q.Resource
	path := "/apis/" + of.GroupVersion().String() + "/" + of.Resource
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{
		IsResourceRequest: true, Path: path, Verb: "create", APIPrefix: "apis", APIGroup: of.Group, APIVersion: of.Version, Resource: of.Resource,
	})
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://apiserver"+path, bytes.NewReader(q.Body))
	if err != nil {
		return nil, "", err
	}
	r.Header.Set("Content-Type", q.Type)
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "edgehub")
	res, err := w.cache.up.RoundTrip(r)
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusCreated {
		return nil, "", fmt.Errorf("post a review of %s again: the apiserver answered %d", of.Resource, res.StatusCode)
	}
	answer, err = io.ReadAll(io.LimitReader(res.Body, most))
	return answer, res.Header.Get("Content-Type"), err
}
