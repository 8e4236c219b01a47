package cache

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/offline"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/review"
)

// persisted are earlier answers of apiservers that are repeated offline.
type persisted struct {
	reviews *review.Reviews
}

// loadPersisted reads them.
func (w *writes) loadPersisted() error {
	reviews, err := review.Open(w.cache.disk, review.Options{TTL: w.cache.opts.AuthorizationTTL, Grace: w.cache.opts.TokenGrace, Logger: w.cache.log})
	if err != nil {
		return err
	}
	w.persisted.Store(&persisted{reviews})
	return nil
}

// isReview reports whether the request is a TokenReview or SubjectAccessReview of the node, which
// its kubelet sends for requests to its own API. Other users get no answers: those to the node
// are not for them.
func (x *exchange) isReview() bool {
	i := x.info
	return x.req.Method == http.MethodPost && x.who.user == query.NodeUser &&
		i.Namespace == "" && i.Name == "" && i.Subresource == "" && review.Wanted(x.resource())
}

// keepReview stores an apiserver's answer to the node.
func (w *writes) keepReview(x *exchange, res *http.Response) {
	x.takeBoth(res, func(request []byte, requestType string, answer []byte, answerType string) error {
		return w.persisted.Load().reviews.Keep(x.resource(), request, requestType, answer, answerType)
	})
}

// review answers like an apiserver; without a stored answer it denies.
func (w *writes) review(x *exchange, request []byte) (*http.Response, error) {
	header := x.req.Header
	body, contentType, err := w.persisted.Load().reviews.Answer(x.resource(), request, header.Get("Content-Type"), header.Get("Accept"), w.reviewRefusal())
	switch {
	case errors.Is(err, convert.ErrNotAcceptable):
		return offline.ErrorResponse(x.req, offline.NotAcceptable(&query.Query{Resource: x.resource(), Accept: header.Get("Accept")}))
	case err != nil:
		return nil, errWrite
	}
	return offline.BytesResponse(x.req, http.StatusCreated, contentType, body), nil
}

// reviewRefusal returns the reason of a denial.
func (w *writes) reviewRefusal() string {
	ttl := w.cache.opts.AuthorizationTTL
	if ttl <= 0 {
		return fmt.Sprintf("edgehub: the cloud %s, and --offline-authorization-ttl=0 lets nobody in then", w.cache.outages.Away())
	}
	return fmt.Sprintf("edgehub: the cloud %s, and within %v (--offline-authorization-ttl) it has not said yes to this, asked by the node", w.cache.outages.Away(), ttl)
}
