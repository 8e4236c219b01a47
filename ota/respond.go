package ota

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/params"
)

// statusClientGone is counted and logged for a caller that hung up before its answer; nobody
// receives it. nginx introduced the number.
const statusClientGone = 499

// handler answers a request, or returns the error to answer with. It must return nil once it has
// written anything.
type handler func(http.ResponseWriter, *http.Request) error

func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := h(w, r); err != nil {
		http.Error(w, oneLine(err), codeOf(err))
	}
}

// only answers requests that have none but these query parameters, each at most once. The handler may take
// its own from r.URL.Query.
func only(h handler, known ...string) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if _, err := params.Parse(r.URL.RawQuery, known...); err != nil {
			return failf(http.StatusBadRequest, "%w", err)
		}
		return h(w, r)
	}
}

// ofPod is only for a handler of the pod that the path names.
func ofPod(h func(http.ResponseWriter, *http.Request, types.NamespacedName) error, known ...string) handler {
	return only(func(w http.ResponseWriter, r *http.Request) error {
		name, err := podOf(r)
		if err != nil {
			return err
		}
		return h(w, r, name)
	}, known...)
}

// methods answers the requests of one path by their method. The handler of GET also answers HEAD:
// net/http drops the body.
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

// failure is an error with the status code of its answer.
type failure struct {
	code    int
	verdict Verdict
	err     error
}

// failf returns a failure whose text the caller reads.
func failf(code int, format string, args ...any) error {
	return &failure{code: code, err: fmt.Errorf(format, args...)}
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// codeOf returns the status code of the answer to err: 200 for nil, and 500 for an error that is
// no failure.
func codeOf(err error) int {
	if err == nil {
		return http.StatusOK
	}
	if f, ok := errors.AsType[*failure](err); ok {
		return f.code
	}
	return http.StatusInternalServerError
}

// oneLine joins the lines of an error, which may contain a text of the apiserver.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}

// writeText answers with exactly this text.
func writeText(w http.ResponseWriter, code int, text string) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text) // fails when the caller is gone
	return nil
}

// writeLine answers with a line of text, which scripts compare.
func writeLine(w http.ResponseWriter, code int, line string) error {
	return writeText(w, code, line+"\n")
}

// writeJSON answers 200 with v, in one line if indent is empty.
func writeJSON(w http.ResponseWriter, v any, indent string) error {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetIndent("", indent)
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = body.WriteTo(w) // fails when the caller is gone
	return nil
}

// lineTimeout is how long a caller may take to read a line.
const lineTimeout = 3 * time.Second

// lines is an answer of lines of JSON, each of which is sent at once. It is for one goroutine.
type lines struct {
	control *http.ResponseController
	encoder *json.Encoder
	empty   bool // nothing was written
}

func newLines(w http.ResponseWriter) *lines {
	w.Header().Set("Content-Type", "application/json")
	return &lines{http.NewResponseController(w), json.NewEncoder(w), true}
}

// write sends a line, and returns false once the caller is gone, or does not read.
func (l *lines) write(v any) bool {
	l.empty = false
	// Without a deadline, a caller that does not read would delay the hub's shutdown. With one that stays, HTTP/2
	// ends the stream when it passes, though nothing is being written then.
	_ = l.control.SetWriteDeadline(time.Now().Add(lineTimeout))
	if l.encoder.Encode(v) != nil || l.control.Flush() != nil {
		return false
	}
	_ = l.control.SetWriteDeadline(time.Time{})
	return true
}

// begin sends the header, for a caller who may have to wait for the first line.
func (l *lines) begin() { _ = l.control.Flush() }
