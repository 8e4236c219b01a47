package cache

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/edgehub-io/edgehub/cache/view"
)

// repeatRig is a hub whose apiservers answer what a test lets them, to repeat it offline.
type repeatRig struct {
	t    *testing.T
	u    *upstream
	dir  string
	more []func(*Options)
	c    *Cache
	stop func()
}

func newRepeatRig(t *testing.T, more ...func(*Options)) *repeatRig {
	t.Helper()
	return newRepeatRigIn(t, t.TempDir(), more...)
}

func newRepeatRigIn(t *testing.T, dir string, more ...func(*Options)) *repeatRig {
	t.Helper()
	r := &repeatRig{t: t, u: newUpstream(), dir: dir, more: more}
	r.c, r.stop = runIn(t, r.dir, r.u, more...)
	return r
}

// restarts restarts the hub, with other options if there are any.
func (r *repeatRig) restarts(more ...func(*Options)) {
	r.t.Helper()
	r.stop()
	r.c, r.stop = runIn(r.t, r.dir, r.u, append(r.more, more...)...)
}

// question is a request: a GET of the node, unless it says otherwise.
type question struct {
	user              context.Context
	method, url, body string
	header            []string // names and values
}

// online asks while the apiservers answer with a code, a body and a header.
func (r *repeatRig) online(q question, code int, body string, header ...string) {
	r.t.Helper()
	r.u.on("get", func(*http.Request) *http.Response {
		res := respond(code, body)
		setHeader(res.Header, header)
		return res
	})
	if res, got := r.asks(q); res == nil || res.StatusCode != code || got != body {
		r.t.Fatalf("online, %s: %v, %s", q.url, res, got)
	}
}

// offline asks while there is no apiserver, and returns the code and body, or "none".
func (r *repeatRig) offline(q question) string {
	r.t.Helper()
	res, body := r.offlineResponse(q)
	if res == nil {
		return body
	}
	return strings.TrimSpace(fmt.Sprint(res.StatusCode, " ", body))
}

func (r *repeatRig) offlineResponse(q question) (*http.Response, string) {
	r.t.Helper()
	if r.u.isUp() {
		r.u.goAway()
		defer r.u.comeBack()
	}
	return r.asks(q)
}

func (r *repeatRig) asks(q question) (res *http.Response, body string) {
	r.t.Helper()
	if q.user == nil {
		q.user = r.t.Context()
	}
	if q.method == "" {
		q.method = http.MethodGet
	}
	like := newRequest(q.user, q.method, q.url)
	req, err := http.NewRequestWithContext(like.Context(), q.method, like.URL.String(), strings.NewReader(q.body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header = like.Header
	setHeader(req.Header, q.header)
	res, err = r.c.RoundTrip(req)
	switch {
	case err != nil && strings.Contains(err.Error(), view.ErrNeverRead.Error()):
		return nil, "none"
	case err != nil:
		return nil, strings.TrimSuffix(err.Error(), ": "+errRefused.Error())
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return res, string(text)
}

// setHeader sets fields by name and value; an empty value removes one.
func setHeader(h http.Header, fields []string) {
	for i := 0; i < len(fields); i += 2 {
		if h.Del(fields[i]); fields[i+1] != "" {
			h.Set(fields[i], fields[i+1])
		}
	}
}

// logsTo makes the hub log everything to w.
func logsTo(w io.Writer) func(*Options) {
	return func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
}
