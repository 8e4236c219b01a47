package cache

import (
	"net/http"
	"testing"
)

// agents are User-Agents of those that other hubs trust.
var agents = []string{"", "kubelet/v1.37.2 (linux/amd64) kubernetes/abcdef", "kube-proxy/v1.37.2", "edgehub/v1"} //nolint:gochecknoglobals // a table

// invariant 18: offline, an identity reads what it has read itself, and nothing of
// another's, whatever its User-Agent says; and so it is after a restart of the hub.
func TestInvariant18_NobodyReadsWhatAnotherHasRead(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.create("c")
	alice, bob, carol := h.as(s.account("alice")), h.as(s.account("bob")), h.as(s.account("carol"))
	other := s.named("c")
	h.node.servedList(t, s.selected("n=1"), protobuf)
	for _, path := range []string{s.path, s.one("c")} {
		alice.get(t, path, protobuf)
	}
	bob.get(t, other, protobuf) // who has read something is known, and still reads no more than that
	check := func(t *testing.T) {
		t.Helper()
		alice.servedList(t, s.path, protobuf)
		alice.get(t, s.one("c"), protobuf)
		bob.servedList(t, other, protobuf)
		h.node.servedList(t, s.selected("n=1"), protobuf)
		h.withCert().servedList(t, s.selected("n=1"), protobuf)
		for _, agent := range agents {
			for _, path := range []string{s.path, s.one("c"), with(s.path, watchListQuery), s.path + "?watch=true&resourceVersion=0"} {
				if a := bob.named(agent).do(t, request{path: path, accept: protobuf}); a.status == http.StatusOK && path != s.one("c") {
					t.Errorf("bob as %q reads %s: %v", agent, path, a)
				}
				carol.named(agent).refused(t, request{path: path, accept: protobuf}, http.StatusServiceUnavailable)
				h.node.named(agent).refused(t, request{path: path, accept: protobuf}, http.StatusServiceUnavailable)
			}
			alice.named(agent).refused(t, request{path: s.selected("n=1"), accept: protobuf}, http.StatusServiceUnavailable)
			alice.named(agent).servedList(t, s.path, protobuf) // nor does it take anything away
			h.node.named(agent).servedList(t, s.selected("n=1"), protobuf)
		}
	}
	h.cut()
	check(t)
	h.stop()
	h.start()
	check(t)
}

// invariant 18: a token that was never accepted, or was refused, reads nothing, not even with a known
// name in it; without a token and a certificate there is nothing at all.
func TestInvariant18_UnknownTokensReadNothing(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	token := s.account("alice")
	h.as(token).servedList(t, s.path, protobuf)
	refused := forge(token)
	h.as(refused).refused(t, request{path: s.path, accept: protobuf}, http.StatusUnauthorized)
	h.cut()
	for name, other := range map[string]string{
		"a new token of the same account": s.token("alice"),
		"a forged signature":              refused,
		"another, which nobody has tried": token[:len(token)-20] + "AAAAAAAAAAAAAAAAAAAA",
		"no JWT":                          "abc",
		"a cut token":                     token[:len(token)-1],
	} {
		if a := h.as(other).do(t, request{path: s.path, accept: protobuf}); a.status != http.StatusServiceUnavailable && a.status != http.StatusUnauthorized {
			t.Errorf("%s: %v", name, a)
		}
	}
	h.secure(nil).refused(t, request{path: s.path, accept: protobuf}, http.StatusUnauthorized) // a program of root's may be a probe
	h.as(token).servedList(t, s.path, protobuf)
	plain := *h.node // the plain port does not make the node of somebody with a token
	plain.token = token
	plain.servedList(t, s.path, protobuf)
	plain.token = "abc"
	if a := plain.do(t, request{path: s.path, accept: protobuf}); a.status == http.StatusOK {
		t.Errorf("a wrong token on the plain port: %v", a)
	}
}

// forge changes a token's signature.
func forge(token string) string {
	out, at := []byte(token), len(token)-10
	if out[at] = 'A'; token[at] == 'A' {
		out[at] = 'B'
	}
	return string(out)
}
