package proxy

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/proxy/authn"
	"github.com/edgehub-io/edgehub/proxy/limits"
)

// errInvalidRequest is wrapped by the errors of validate; the caller gets 400.
var errInvalidRequest = errors.New("this request cannot be passed on as it is")

// errHeaderTooLarge is wrapped by the error of checkSize; the caller gets 431.
var errHeaderTooLarge = errors.New("the header of this request is too large")

// maxCallerRequests bounds the requests in flight of callers with credentials of their own. A
// watch costs about 40 KB, and one HTTP/2 connection may carry 250 of them. A node's pods have
// a few hundred. One service account gets a third, its namespace half: see limits.Shares.
const maxCallerRequests = 4096

// maxRefusals bounds how many refusals wait for their clients at a time; each holds its request. A
// client that reads takes microseconds. One of HTTP/2 that takes nothing would have 250 wait for ever.
const maxRefusals = 256

// errTooManyRequests becomes a 429, after which client-go retries.
var errTooManyRequests = errors.New("too many requests of this caller, or of others in its namespace, are being answered, watches among them; try again")

// reject answers a request that is not forwarded. It is counted under the verb "other": callers
// that are not authenticated must not create labels.
func (p *Proxy) reject(w http.ResponseWriter, r *http.Request, err error) {
	p.refused(r.Context())
	code, reason := http.StatusUnauthorized, metav1.StatusReasonUnauthorized
	switch {
	case errors.Is(err, authn.ErrForbidden):
		code, reason = http.StatusForbidden, metav1.StatusReasonForbidden
	case errors.Is(err, errTooManyRequests), errors.Is(err, errTooCostly):
		code, reason = http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests
	case errors.Is(err, errHeaderTooLarge):
		code, reason = http.StatusRequestHeaderFieldsTooLarge, metav1.StatusReasonBadRequest
	case errors.Is(err, errInvalidRequest):
		code, reason = http.StatusBadRequest, metav1.StatusReasonBadRequest
	}
	p.metrics.requests.WithLabelValues("other", strconv.Itoa(code)).Inc()
	bounded := limits.NewResponseWriter(w, p.refusals)
	writeStatus(bounded, code, reason, "edgehub: "+err.Error())
	if r.ProtoMajor > 1 { // HTTP/1.1 has one request a connection, and would read the rest of its body first
		_ = bounded.FlushError() // fails if the client is gone; net/http would wait for it without a bound
	}
}

// writeBodyTimeout answers a body timeout, in case the client still reads.
func writeBodyTimeout(w http.ResponseWriter) int {
	w.Header().Set("Connection", "close")
	writeStatus(w, http.StatusRequestTimeout, metav1.StatusReasonTimeout, "edgehub: "+limits.ErrBodyTimeout.Error()+"; send the request again")
	return http.StatusRequestTimeout
}

// retryAfter is the Retry-After header, in seconds. client-go honours it on any 5xx and on 429.
// The hub is on the same machine, so that an early retry does not use the link.
const retryAfter = 1

// lossGrace is how long after a loss every caller is asked to come again: most losses are short.
const lossGrace = 10 * time.Second

// comesAgain reports whether a caller that is told that the cloud was lost at a time, zero if a moment ago, is asked to
// come again. client-go comes ten times in ten seconds then, and blocks its caller meanwhile: kubelet mounts volumes one
// after the other. Informers need it, to be back as soon as the cloud is; others get what they have in any outage.
func comesAgain(verb string, lost time.Time) bool {
	return verb == "list" || verb == "watch" || lost.IsZero() || time.Since(lost) < lossGrace
}

// writeStatus sends a metav1.Status of this code. A caller that gets 429 or 503 is asked to come again.
func writeStatus(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	sendStatus(w, code, reason, message, code == http.StatusServiceUnavailable || code == http.StatusTooManyRequests)
}

// sendStatus is writeStatus, and has the caller come again or not. A Status is JSON whatever the client accepts:
// Kubernetes clients decode by the answer's Content-Type.
func sendStatus(w http.ResponseWriter, code int, reason metav1.StatusReason, message string, again bool) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Reason:   reason,
		Message:  message,
		Code:     int32(code),
	}
	if again {
		status.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfter}
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-cache, private")
	body, _ := json.Marshal(status) // a Status always can be encoded
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	_, _ = w.Write(body) // fails only if the client has disconnected
}
