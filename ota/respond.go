package ota

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// statusClientGone is counted and logged for a caller that hung up before its
// answer; nobody receives it. The number is the one nginx made common.
const statusClientGone = 499

// handler answers a request, or returns the error to answer it with. Once it
// has written anything it returns nil, or an error from writing, which no one
// can be told of any more.
type handler func(http.ResponseWriter, *http.Request) error

func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := h(w, r); err != nil {
		http.Error(w, oneLine(err), codeOf(err))
	}
}

// methods answers a path by the request's method. HEAD is taken wherever GET is:
// net/http leaves out the body.
type methods map[string]handler

func (m methods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	h, ok := m[method]
	if !ok {
		h = m.notAllowed
	}
	h.ServeHTTP(w, r)
}

func (m methods) notAllowed(w http.ResponseWriter, r *http.Request) error {
	allowed := slices.Sorted(maps.Keys(m))
	if m[http.MethodGet] != nil {
		allowed = append(allowed, http.MethodHead)
	}
	list := strings.Join(allowed, ", ")
	w.Header().Set("Allow", list)
	return failf(http.StatusMethodNotAllowed, "method %.20q is not for %.200q: use %s", r.Method, r.URL.Path, list)
}

// failure is an error with the status code it is answered with.
type failure struct {
	code int
	err  error
}

// failf returns a failure; the words are what the caller gets to read.
func failf(code int, format string, args ...any) error {
	return &failure{code: code, err: fmt.Errorf(format, args...)}
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// codeOf is the status code that err is answered with: 200 for none, and 500 for
// one that no handler gave a code.
func codeOf(err error) int {
	if err == nil {
		return http.StatusOK
	}
	if f, ok := errors.AsType[*failure](err); ok {
		return f.code
	}
	return http.StatusInternalServerError
}

// oneLine keeps to one line what upstream may have said in several.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}

// writeText answers 200 with exactly this text: scripts compare it, so it gets
// no newline.
func writeText(w http.ResponseWriter, text string) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, text) // fails when the caller is gone
	return nil
}

// writeIndented answers 200 with v, indented for people.
func writeIndented(w http.ResponseWriter, v any) error {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n')) // fails when the caller is gone
	return nil
}
