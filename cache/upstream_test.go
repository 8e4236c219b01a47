package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// errRefused is the error of upstream while no apiserver can be reached.
var errRefused = errors.New("connection refused")

// answerFunc returns the answer of the apiservers; nil is a refused connection.
type answerFunc func(*http.Request) *http.Response

// upstream are the apiservers, in memory. A test sets the answers to "get", "list", "watch",
// "delete", "access" and "check", which is the list of one object for its version. Watches stay open by
// default, and a test writes to them through feeds.
type upstream struct {
	feeds chan *io.PipeWriter // holds more than any test opens

	mu      sync.Mutex
	answers map[string]answerFunc
	asked   map[string][]asked
	up      chan struct{} // closed while there is an apiserver
	lost    chan struct{} // closed while there is none
	in      chan struct{} // closed while they let the node in
	out     chan struct{} // closed while they do not, or there is none
	hole    chan struct{} // nil, or open while they swallow everything since the start of the hub
	silent  time.Time     // when the first request was swallowed
}

// asked is a request that has arrived.
type asked struct {
	at    time.Time
	query url.Values
}

func newUpstream() *upstream {
	u := &upstream{
		feeds: make(chan *io.PipeWriter, 1000), answers: map[string]answerFunc{}, asked: map[string][]asked{},
		up: make(chan struct{}), lost: make(chan struct{}), in: make(chan struct{}), out: make(chan struct{}),
	}
	close(u.up)
	close(u.in)
	u.on("watch", u.open)
	return u
}

// on sets the answers to a verb.
func (u *upstream) on(verb string, answer answerFunc) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.answers[verb] = answer
}

// onText sets one answer to a verb.
func (u *upstream) onText(verb string, code int, body string) {
	u.on(verb, func(*http.Request) *http.Response { return respond(code, body) })
}

// shows sets the version of the apiservers, and the pods.
func (u *upstream) shows(version string, pods ...string) {
	u.onText("list", http.StatusOK, podsJSON(version, pods...))
	u.onText("check", http.StatusOK, podsJSON(version, pods...))
	u.on("get", func(r *http.Request) *http.Response {
		for _, p := range pods {
			if strings.Contains(p, fmt.Sprintf(`"name":%q`, r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:])) {
				return respond(http.StatusOK, p)
			}
		}
		return respond(http.StatusNotFound, "{}")
	})
}

// open answers with a body that stays open until the test or the request ends.
func (u *upstream) open(r *http.Request) *http.Response {
	in, out := io.Pipe()
	context.AfterFunc(r.Context(), func() { out.CloseWithError(context.Cause(r.Context())) })
	u.feeds <- out
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: in, ContentLength: -1,
	}
}

// count returns how many requests of a verb have arrived.
func (u *upstream) count(verb string) int { return len(u.all(verb)) }

func (u *upstream) all(verb string) []asked {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.asked[verb]
}

// forget drops the requests that all has returned.
func (u *upstream) forget() {
	u.mu.Lock()
	defer u.mu.Unlock()
	clear(u.asked)
}

// goAway makes the apiservers unreachable.
func (u *upstream) goAway() {
	u.mu.Lock()
	defer u.mu.Unlock()
	close(u.lost)
	close(u.out)
	u.up = make(chan struct{})
}

func (u *upstream) isUp() bool {
	select {
	case <-u.Lost(context.Background()):
		return false
	default:
		return true
	}
}

func (u *upstream) comeBack() {
	u.mu.Lock()
	defer u.mu.Unlock()
	close(u.up)
	u.lost, u.out = make(chan struct{}), make(chan struct{})
}

// shutOut makes the apiservers refuse the node.
func (u *upstream) shutOut() {
	u.mu.Lock()
	defer u.mu.Unlock()
	close(u.out)
	u.in = make(chan struct{})
}

func (u *upstream) letIn() {
	u.mu.Lock()
	defer u.mu.Unlock()
	close(u.in)
	u.out = make(chan struct{})
}

// beginSilent makes the apiservers swallow everything from the start of a hub on, until answer is
// called, or the hub has noticed after lossTimeout.
func (u *upstream) beginSilent() (answer func()) {
	hole := make(chan struct{})
	u.mu.Lock()
	defer u.mu.Unlock()
	u.hole, u.silent = hole, time.Time{}
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.hole = nil
		close(hole)
	}
}

// lossTimeout is how long it takes until silence counts as a loss.
const lossTimeout = 2500 * time.Millisecond

// swallow returns at once unless the apiservers are silent.
func (u *upstream) swallow(r *http.Request) error {
	u.mu.Lock()
	hole := u.hole
	if u.silent.IsZero() {
		u.silent = time.Now()
	}
	since := u.silent
	u.mu.Unlock()
	if hole == nil {
		return nil
	}
	loss := time.NewTimer(time.Until(since.Add(lossTimeout)))
	defer loss.Stop()
	select {
	case <-hole:
		return nil
	case <-r.Context().Done():
		return r.Context().Err()
	case <-loss.C:
	}
	u.mu.Lock()
	noticed := u.hole == hole
	if noticed {
		u.hole = nil
	}
	u.mu.Unlock()
	if noticed {
		u.goAway()
	}
	return errRefused
}

func (u *upstream) IsUndecided(context.Context) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.hole != nil
}

// isNodes reports whether the node has sent a request.
func isNodes(ctx context.Context) bool { return ctx.Value(tokenKey{}) == nil }

func (u *upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path == urlReview && u.isUp() {
		return u.review(r), nil
	}
	if err := u.swallow(r); err != nil {
		return nil, err
	}
	answer := u.arrived(r)
	if answer == nil {
		return nil, errRefused
	}
	if res := answer(r); res != nil {
		return res, nil
	}
	return nil, errRefused
}

// urlSelfAccess is where the hub asks what a user may read. By default it gets no answer.
const urlSelfAccess = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

const urlReview = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

// review answers a review of a token: the user is the part of the token before the dot.
func (u *upstream) review(r *http.Request) *http.Response {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	name, _, _ := strings.Cut(token, ".")
	u.mu.Lock()
	defer u.mu.Unlock()
	if answer := u.answers["review"]; answer != nil {
		return answer(r)
	}
	u.asked["review"] = append(u.asked["review"], asked{time.Now(), nil})
	return respond(http.StatusCreated, fmt.Sprintf(`{"status":{"userInfo":{"username":%q,"uid":"u-%s"}}}`, name, name))
}

func (u *upstream) arrived(r *http.Request) answerFunc {
	u.mu.Lock()
	defer u.mu.Unlock()
	gone := u.lost
	if isNodes(r.Context()) {
		gone = u.out
	}
	select {
	case <-gone:
		return nil
	default:
	}
	verb := verbOf(r)
	u.asked[verb] = append(u.asked[verb], asked{time.Now(), r.URL.Query()})
	return u.answers[verb]
}

func (u *upstream) WaitUp(ctx context.Context) error {
	u.mu.Lock()
	reached := []chan struct{}{u.up}
	if isNodes(ctx) {
		reached = append(reached, u.in)
	}
	u.mu.Unlock()
	for _, one := range reached {
		select {
		case <-one:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (u *upstream) Lost(ctx context.Context) <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	if isNodes(ctx) {
		return u.out
	}
	return u.lost
}

func verbOf(r *http.Request) string {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/"), "/")
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	query := r.URL.Query()
	switch {
	case r.URL.Path == urlSelfAccess:
		return "access"
	case r.Method == http.MethodDelete:
		return "delete"
	case query.Has("watch"):
		return "watch"
	case len(parts) > 1:
		return "get"
	case query.Get("limit") == "1":
		return "check"
	}
	return "list"
}

func respond(code int, body string) *http.Response {
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: -1,
	}
}

func podJSON(name, version string, labels ...string) string {
	var label string
	if len(labels) > 0 {
		label = fmt.Sprintf(`,"labels":{"l":%q}`, labels[0])
	}
	return fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"namespace":"ns","uid":"u-%s","resourceVersion":%q%s}}`, name, name, version, label)
}

func podsJSON(version string, pods ...string) string {
	return fmt.Sprintf(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":%q},"items":[%s]}`, version, strings.Join(pods, ","))
}

func podEvent(kind, name, version string) string {
	return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", kind, podJSON(name, version))
}

// podBookmark returns a bookmark; end makes it the one that ends initial events.
func podBookmark(version string, end bool) string {
	annotations := ""
	if end {
		annotations = `,"annotations":{"k8s.io/initial-events-end":"true"}`
	}
	return fmt.Sprintf(`{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":%q%s}}}`+"\n", version, annotations)
}

// send writes events to a watch.
func send(t *testing.T, feed *io.PipeWriter, events ...string) {
	t.Helper()
	if _, err := io.WriteString(feed, strings.Join(events, "")); err != nil {
		t.Fatalf("send: %v", err)
	}
}
