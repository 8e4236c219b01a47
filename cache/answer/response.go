package answer

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Response returns a response with a body of a length in bytes, or of unknown length if that is
// negative.
func Response(r *http.Request, code int, contentType string, length int64, body io.ReadCloser) *http.Response {
	header := http.Header{"Cache-Control": {"no-cache, private"}}
	if contentType != "" {
		header.Set("Content-Type", contentType)
	}
	if length >= 0 {
		header.Set("Content-Length", strconv.FormatInt(length, 10))
	}
	return &http.Response{
		Status: strconv.Itoa(code) + " " + http.StatusText(code), StatusCode: code,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: body, ContentLength: length, Request: r,
	}
}

// BytesResponse returns a response with a body.
func BytesResponse(r *http.Request, code int, contentType string, body []byte) *http.Response {
	return Response(r, code, contentType, int64(len(body)), io.NopCloser(bytes.NewReader(body)))
}

// ErrorResponse answers with the Status of err, if it has one; otherwise it returns err. A Status
// is JSON whatever the client accepts: Kubernetes clients decode it by the Content-Type of the
// answer.
func ErrorResponse(r *http.Request, err error) (*http.Response, error) {
	var withStatus apierrors.APIStatus
	if !errors.As(err, &withStatus) {
		return nil, err
	}
	status := withStatus.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	body, jsonErr := json.Marshal(status)
	if jsonErr != nil {
		return nil, err
	}
	res := BytesResponse(r, int(status.Code), "application/json", append(body, '\n'))
	if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
		res.Header.Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	return res, nil
}
