package cache

import (
	"net/http"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// cut takes the cloud away: connecting is refused, and connections break.
func (h *hub) cut() {
	h.t.Helper()
	if err := h.link.Refuse(); err != nil {
		h.t.Fatal(err)
	}
	h.link.Reset()
}

// lose is cut, and returns when the hub has noticed: a write that is under way at that
// moment may have been carried out, and is not answered from the cache.
func (h *hub) lose() {
	h.t.Helper()
	h.cut()
	poll.Until(h.t, patience, "the hub knows that the cloud is away", func() bool { return h.review() == http.StatusServiceUnavailable })
}

// blackHole takes the cloud away without a word: what is sent never arrives.
func (h *hub) blackHole() {
	h.t.Helper()
	if err := h.link.BlackHole(); err != nil {
		h.t.Fatal(err)
	}
}

// connect brings the cloud back, and returns when the hub has noticed.
func (h *hub) connect() {
	h.t.Helper()
	if err := h.link.Up(); err != nil {
		h.t.Fatal(err)
	}
	h.awaitOnline()
}

// awaitOnline returns when the hub passes requests on.
func (h *hub) awaitOnline() {
	h.t.Helper()
	poll.Until(h.t, patience, "the hub reaches the cloud", func() bool { return h.online() })
}

// online reports whether a request that no cache answers gets through.
func (h *hub) online() bool { return h.review() == http.StatusCreated }

// review is how a request is answered that no cache can answer.
func (h *hub) review() int {
	const review = `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}`
	a := h.node.try(h.t.Context(), request{
		method: http.MethodPost, path: "/apis/authentication.k8s.io/v1/selfsubjectreviews", accept: asJSON, contentType: asJSON, body: []byte(review)})
	return a.status
}
