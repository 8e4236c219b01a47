package offline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Response is a response of the cache's own.
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

// BytesResponse is a response with a body that is at hand.
func BytesResponse(r *http.Request, code int, contentType string, body []byte) *http.Response {
	return Response(r, code, contentType, int64(len(body)), io.NopCloser(bytes.NewReader(body)))
}

// answerStatus says what an apiserver would say. A Status is JSON whatever the
// client accepts: Kubernetes clients decode by the answer's Content-Type.
func answerStatus(r *http.Request, err apierrors.APIStatus) (*http.Response, error) {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	body, jsonErr := json.Marshal(status)
	if jsonErr != nil {
		return nil, fmt.Errorf("write Status: %w", jsonErr)
	}
	res := BytesResponse(r, int(status.Code), "application/json", append(body, '\n'))
	if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
		res.Header.Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	return res, nil
}

// ErrorResponse answers with err if it is what an apiserver would say.
func ErrorResponse(r *http.Request, err error) (*http.Response, error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return nil, err
	}
	res, statusErr := answerStatus(r, status)
	if statusErr != nil {
		return nil, err
	}
	return res, nil
}
