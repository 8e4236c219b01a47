package cache

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/test/internal/audit"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// issue asks for a token of a service account through a hub, as kubelet does for a pod.
func (s *space) issue(c *client, account, query string, spec *authenticationv1.TokenRequestSpec) answer {
	s.t.Helper()
	body, err := json.Marshal(authenticationv1.TokenRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"}, Spec: *spec,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	path := "/api/v1/namespaces/" + s.name + "/serviceaccounts/" + account + "/token" + query
	return c.do(s.t, request{method: http.MethodPost, path: path, accept: kubelet, contentType: asJSON, body: body})
}

// issued is issue where there is a token.
func (s *space) issued(c *client, account, query string, spec *authenticationv1.TokenRequestSpec) string {
	s.t.Helper()
	a := s.issue(c, account, query, spec)
	if a.status != http.StatusCreated {
		s.t.Fatalf("no token is issued: %v", a)
	}
	return decodeAs[*authenticationv1.TokenRequest](s.t, a).Status.Token
}

// issue 12, #6: kubelet has renewed a pod's token, and the cloud goes away before the pod
// has used it. What the pod has read with the one before, it reads with this one: also after
// a restart of the hub, and with the token that kubelet is given again offline.
func TestATokenThatWasRenewedBeforeTheCutIsKnown(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.create("c")
	first := s.account("alice")
	h.as(first).servedList(t, s.path, protobuf)
	h.as(first).get(t, s.one("c"), protobuf)
	spec := &authenticationv1.TokenRequestSpec{}
	second := s.issued(h.node, "alice", "", spec)
	check := func(token string) {
		t.Helper()
		h.as(token).servedList(t, s.path, protobuf)
		h.as(token).get(t, s.one("c"), protobuf)
	}
	h.lose()
	check(second)
	h.stop()
	h.start()
	check(second)
	again := s.issued(h.node, "alice", "", spec)
	check(again)
	check(first)
}

// A token that an apiserver did not issue for itself says nothing of its holder to the hub:
// who it is for (a Vault, say) may hand it on.
func TestATokenForOthersIsNotKnown(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	h.as(s.account("alice")).servedList(t, s.path, protobuf)
	tokens := map[string]string{
		"a token for somebody else":                      s.issued(h.node, "alice", "", &authenticationv1.TokenRequestSpec{Audiences: []string{"vault"}}),
		"a token of a dry run":                           s.issued(h.node, "alice", "?dryRun=All", &authenticationv1.TokenRequestSpec{}),
		"a token of a dry run in other letters":          s.issued(h.node, "alice", "?dr%79Run=All", &authenticationv1.TokenRequestSpec{}),
		"a token for the apiserver, by its name":         s.issued(h.node, "alice", "", &authenticationv1.TokenRequestSpec{Audiences: []string{"https://kubernetes.default.svc"}}),
		"a token of the account that came past the hub":  s.token("alice"),
		"a token of another account of the same name":    newNamesake(t, h, "alice"),
		"a token of an account that has read nothing":    s.issued(h.node, s.reader("carol"), "", &authenticationv1.TokenRequestSpec{}),
		"a token of an account whose name begins so too": s.issued(h.node, s.reader("alice2"), "", &authenticationv1.TokenRequestSpec{}),
	}
	h.lose()
	for what, token := range tokens {
		for _, path := range []string{s.path, with(s.path, watchListQuery)} {
			if a := h.as(token).do(t, request{path: path, accept: protobuf}); a.status != http.StatusServiceUnavailable {
				t.Errorf("%s reads %s: %v", what, path, a)
			}
		}
	}
}

// reader makes a service account that may read here, and returns its name.
func (s *space) reader(name string) string {
	s.t.Helper()
	s.account(name)
	return name
}

// newNamesake issues a token of an account of the same name in another namespace.
func newNamesake(t *testing.T, h *hub, name string) string {
	t.Helper()
	s := newSpace(t)
	return s.issued(h.node, s.reader(name), "", &authenticationv1.TokenRequestSpec{})
}

// A service account that was deleted and made again is another one: its UID is.
func TestARecreatedAccountReadsNothingOfTheOldOnes(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	old := s.account("alice")
	h.as(old).servedList(t, s.path, protobuf)
	accounts := env.client.CoreV1().ServiceAccounts(s.name)
	if err := accounts.Delete(t.Context(), "alice", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, patience, "the old token is refused", func() bool {
		return h.as(old).do(t, request{path: s.path, accept: protobuf}).status == http.StatusUnauthorized
	})
	if err := env.client.RbacV1().RoleBindings(s.name).Delete(t.Context(), "alice", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	fresh := s.account("alice")
	issued := s.issued(h.node, "alice", "", &authenticationv1.TokenRequestSpec{})
	h.as(fresh).get(t, s.named("nobody"), protobuf)
	h.lose()
	for what, token := range map[string]string{"the new account": fresh, "its token that it has not used": issued, "the old account": old} {
		if a := h.as(token).do(t, request{path: s.path, accept: protobuf}); a.status != http.StatusServiceUnavailable {
			t.Errorf("%s reads: %v", what, a)
		}
	}
	h.as(fresh).servedList(t, s.named("nobody"), protobuf)
	h.as(issued).servedList(t, s.named("nobody"), protobuf)
}

// reviewsOf are the requests by which the hub asks whose a token is.
func reviewsOf(requests []audit.Request) (n int) {
	for _, r := range requests {
		if strings.HasPrefix(r.RequestURI, "/apis/authentication.k8s.io/v1/selfsubjectreviews") || strings.HasPrefix(r.RequestURI, "/apis/authentication.k8s.io/v1/tokenreviews") {
			n++
		}
	}
	return n
}

// A token that the hub has not seen costs one request more, once; one that was issued
// through it, or is worth nothing, none.
func TestANewTokenCostsOneRequest(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	first := s.account("alice")
	second, issued := s.token("alice"), s.issued(h.node, "alice", "", &authenticationv1.TokenRequestSpec{})
	user := "system:serviceaccount:" + s.name + ":alice"
	costs := func(what string, want int, do func()) {
		t.Helper()
		mark := env.audit.mark(t)
		do()
		if got := reviewsOf(env.audit.since(t, mark, user)); got != want {
			t.Errorf("%s costs %d reviews, want %d", what, got, want)
		}
	}
	reads := func(token string) func() {
		return func() {
			done := make(chan struct{}, 10) // one for each reader; never closed
			for range cap(done) {
				go func() {
					defer func() { done <- struct{}{} }()
					a := h.as(token).try(t.Context(), request{path: s.path, accept: protobuf})
					if a.status != http.StatusOK {
						t.Errorf("a list: %v", a)
					}
				}()
			}
			for range cap(done) {
				<-done
			}
			h.as(token).get(t, "/version", asJSON)
		}
	}
	costs("a new token", 1, reads(first))
	costs("one that is known", 0, reads(first))
	costs("a second token", 1, reads(second))
	costs("a token that was issued through the hub", 0, reads(issued))
	h.stop()
	h.start()
	costs("a token that was known before a restart", 0, reads(first))
	mark := env.audit.mark(t)
	for i := range 20 {
		h.as(fmt.Sprint("garbage", i)).refused(t, request{path: s.path, accept: protobuf}, http.StatusUnauthorized)
		if a := h.as(unsigned(first)).do(t, request{path: s.path + "?timeout=1ns", accept: protobuf}); a.status < 401 {
			t.Errorf("a forged token: %v", a)
		}
	}
	if got := reviewsOf(env.audit.since(t, mark, "")); got != 0 {
		t.Errorf("tokens that are worth nothing cost %d reviews", got)
	}
}
