package upstream_test

import (
	"context"
	"crypto/x509"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/proxy/authn"
	"github.com/edgehub-io/edgehub/proxy/limits"
	"github.com/edgehub-io/edgehub/proxy/upstream"
)

// door is an apiserver that lets in some tokens only.
type door struct {
	mu     sync.Mutex
	in     map[string]bool
	asked  []string // "METHOD path token"
	before func(r *http.Request)
}

func newDoor(tokens ...string) *door {
	d := &door{}
	d.letIn(tokens...)
	return d
}

// letIn lets in these tokens, and no others.
func (d *door) letIn(tokens ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.in = map[string]bool{}
	for _, token := range tokens {
		d.in["Bearer "+token] = true
	}
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if d.before != nil {
		d.before(r)
	}
	d.mu.Lock()
	in := d.in[r.Header.Get("Authorization")] || r.URL.Path == "/livez"
	d.asked = append(d.asked, r.Method+" "+r.URL.Path+" "+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	d.mu.Unlock()
	if !in {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	ok(w, r)
}

// count is how many requests began so.
func (d *door) count(prefix string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, line := range d.asked {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

// quick finds out soon that something is over.
var quick = upstream.Limits{Probe: 50 * time.Millisecond}

// ask sends one request through a hub.
func ask(t *testing.T, h *hubUnderTest, method, body, token string) (code int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, h.URL+"/api/v1/pods", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := h.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(answer)
}

// canReach reports whether a caller of id can reach the cloud, and checks that all
// ways to ask say the same.
func canReach(t *testing.T, u *upstream.Upstream, id authn.Identity) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(authn.WithIdentity(t.Context(), id), 50*time.Millisecond)
	defer cancel()
	waits := u.WaitUp(ctx) != nil
	select {
	case <-u.Lost(ctx):
		if !waits {
			t.Errorf("for %v the cloud is lost, and WaitUp does not wait", id)
		}
	default:
		if waits {
			t.Errorf("for %v the cloud is there, and WaitUp waits", id)
		}
	}
	return !waits
}

func awaitNode(t *testing.T, u *upstream.Upstream) {
	t.Helper()
	ctx, cancel := context.WithTimeout(authn.AsNode(t.Context()), 2*time.Minute)
	defer cancel()
	if err := u.WaitUp(ctx); err != nil {
		t.Fatal("the node is not let in again")
	}
}

func TestANodeThatIsRefusedIsServedAsIfTheCloudWereAway(t *testing.T) {
	d := newDoor("pod")
	hub := newHubWithin(t, quick, upstream.Credentials{Token: "old"}, apiServer(t, d.ServeHTTP))
	large := strings.Repeat("x", limits.MaxReplay+1)
	for _, tt := range []struct{ method, body string }{{"GET", ""}, {"POST", "small"}, {"PUT", large}, {"DELETE", ""}} {
		code, text := ask(t, hub, tt.method, tt.body, "")
		if code != http.StatusServiceUnavailable || !strings.Contains(text, "edgehub: the cloud does not let this node in: ") || !strings.Contains(text, "it refuses the node's credentials (401 Unauthorized)") {
			t.Errorf("%s: %d %s", tt.method, code, text)
		}
	}
	if n := d.count("GET /api/v1/pods old"); n != 1 || d.count("POST")+d.count("PUT")+d.count("DELETE") != 0 {
		t.Errorf("once refused, the node's requests are sent all the same: %v", d.asked)
	}
	if code, text := ask(t, hub, "POST", "x", "pod"); code != http.StatusOK {
		t.Errorf("who has a token of its own: %d %s", code, text)
	}
	if code, _ := ask(t, hub, "GET", "", "other"); code != http.StatusUnauthorized {
		t.Errorf("who has a token that is none: %d", code)
	}
	if canReach(t, hub.upstream, authn.Node) || !canReach(t, hub.upstream, authn.Caller) {
		t.Error("the node can reach the cloud, or others cannot")
	}
	if s := hub.upstream.State(); !s.Up || !s.Refused || s.RefusedSince.IsZero() || s.Servers[0].Refused == nil || !s.Servers[0].Up {
		t.Errorf("state %+v", s)
	}
	if got := gauge(t, hub.registry, "edgehub_upstream_credentials_refused"); got != 1 {
		t.Errorf("edgehub_upstream_credentials_refused is %v", got)
	}

	d.letIn("pod", "new")
	hub.upstream.SetCredentials(&upstream.Credentials{CAs: serverCAs(), Token: "new"})
	if code, text := ask(t, hub, "PUT", large, ""); code != http.StatusOK || !canReach(t, hub.upstream, authn.Node) || hub.upstream.State().Refused {
		t.Errorf("with other credentials: %d %.300s", code, text)
	}
}

func TestCredentialsThatAreTakenAfterAll(t *testing.T) {
	d := newDoor()
	hub := newHubWithin(t, quick, upstream.Credentials{Token: "node"}, apiServer(t, d.ServeHTTP))
	if code, _ := ask(t, hub, "GET", "", ""); code != http.StatusServiceUnavailable {
		t.Fatalf("refused: %d", code)
	}
	d.letIn("node")
	awaitNode(t, hub.upstream)
	if code, _ := ask(t, hub, "GET", "", ""); code != http.StatusOK {
		t.Errorf("let in again: %d", code)
	}
}

func TestA401ThatSaysNothingOfTheNodeIsPassedOn(t *testing.T) {
	api := apiServer(t, func(w http.ResponseWriter, r *http.Request) { // a kubelet's, behind the apiserver
		if r.URL.Path != "/api" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	hub := newHubWithin(t, quick, upstream.Credentials{Token: "node"}, api)
	if code, _ := ask(t, hub, "GET", "", ""); code != http.StatusUnauthorized || hub.upstream.State().Refused {
		t.Errorf("%d, refused %v", code, hub.upstream.State().Refused)
	}
}

func TestAnApiserverThatRefusesTheNodeIsPassedOver(t *testing.T) {
	d := newDoor("pod")
	hub := newHubWithin(t, upstream.Limits{Probe: time.Hour}, upstream.Credentials{Token: "node"}, apiServer(t, d.ServeHTTP), apiServer(t, ok))
	for _, method := range []string{"POST", "GET", "POST"} {
		if code, text := ask(t, hub, method, "body", ""); code != http.StatusOK || text != method+" body" {
			t.Errorf("%s: %d %s", method, code, text)
		}
	}
	if n := d.count("POST") + d.count("GET /api/v1"); n != 1 {
		t.Errorf("%d requests went to who refuses the node, want one", n)
	}
	if s := hub.upstream.State(); s.Refused || s.Servers[0].Refused == nil || s.Servers[1].Refused != nil {
		t.Errorf("state %+v", s)
	}
	if ask(t, hub, "GET", "", "pod"); d.count("GET /api/v1/pods pod") != 1 {
		t.Error("others do not go to it any more")
	}
}

func TestWithoutCredentialsNothingIsSentInTheNodesName(t *testing.T) {
	d := newDoor("pod", "")
	api := apiServer(t, d.ServeHTTP)
	hub := newHubWithin(t, quick, upstream.Credentials{Missing: &upstream.MissingError{Reason: "it has no certificate yet"}}, api)
	if code, text := ask(t, hub, "GET", "", ""); code != http.StatusServiceUnavailable || !strings.Contains(text, "does not let this node in: ") || !strings.Contains(text, ": it has no certificate yet") {
		t.Errorf("%d %s", code, text)
	}
	if n := d.count("GET /api"); n != 0 {
		t.Errorf("%d requests were sent as nobody", n)
	}
	if code, _ := ask(t, hub, "GET", "", "pod"); code != http.StatusOK || canReach(t, hub.upstream, authn.Node) {
		t.Errorf("who has a token: %d", code)
	}
	d.letIn("node")
	hub.upstream.SetCredentials(&upstream.Credentials{CAs: serverCAs(), Token: "node"})
	if code, _ := ask(t, hub, "GET", "", ""); code != http.StatusOK {
		t.Errorf("with credentials: %d", code)
	}
}

func TestARequestThatWasRefusedWithOldCredentialsIsSentWithTheNewOnes(t *testing.T) {
	d := newDoor("new")
	var hub *hubUnderTest
	var once atomic.Bool
	d.before = func(r *http.Request) {
		if r.Method == http.MethodPost && once.CompareAndSwap(false, true) {
			hub.upstream.SetCredentials(&upstream.Credentials{CAs: serverCAs(), Token: "new"})
		}
	}
	hub = newHubWithin(t, quick, upstream.Credentials{Token: "old"}, apiServer(t, d.ServeHTTP))
	if code, text := ask(t, hub, "POST", "body", ""); code != http.StatusOK || text != "POST body" || d.count("POST /api/v1/pods old") != 1 {
		t.Errorf("%d %s, %v", code, text, d.asked)
	}
	if hub.upstream.State().Servers[0].Refused != nil {
		t.Error("the new credentials count as refused")
	}
}

func TestManyRequestsThatAreRefusedLeadToOneLook(t *testing.T) {
	d := newDoor()
	hub := newHubWithin(t, upstream.Limits{Probe: time.Hour}, upstream.Credentials{Token: "node"}, apiServer(t, d.ServeHTTP))
	var all sync.WaitGroup
	for range 30 {
		all.Go(func() {
			if code, _ := ask(t, hub, "GET", "", ""); code != http.StatusServiceUnavailable {
				t.Errorf("%d", code)
			}
		})
	}
	all.Wait()
	if n := d.count("GET /api node"); n != 1 {
		t.Errorf("%d looks", n)
	}
}

// An apiserver that names other CAs in the handshake, since its own have changed, is
// still shown the certificate, so that it says 401: without one the node would be
// anybody, who may read nothing, and what it has read would be taken from it.
func TestTheNodesCertificateIsShownWhateverCAsTheApiserverNames(t *testing.T) {
	api := unstartedAPIServer(whoCalls)
	api.TLS.ClientCAs = serverCAs()
	api.StartTLS()
	t.Cleanup(api.Close)
	hub := newHub(t, upstream.Credentials{Certificate: selfSigned(t, "system:node:n1", x509.Certificate{})}, api.URL)
	if got := get(t, hub, "/api", nil); got != "system:node:n1|" {
		t.Errorf("the apiserver sees %q", got)
	}
}
