package proxy

import (
	"encoding/json"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// retryAfter is the Retry-After header, in seconds. client-go honours it on any 5xx and on 429.
// The hub is on the same machine, so that an early retry does not use the link.
const retryAfter = 1

// writeStatus sends a metav1.Status of this code. A Status is JSON whatever the
// client accepts: Kubernetes clients decode by the answer's Content-Type.
func writeStatus(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Reason:   reason,
		Message:  message,
		Code:     int32(code),
	}
	if code == http.StatusServiceUnavailable || code == http.StatusTooManyRequests {
		status.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfter}
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-cache, private")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(status) // fails only if the client has disconnected
}
