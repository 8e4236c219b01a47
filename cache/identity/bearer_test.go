package identity_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"

	"github.com/edgehub-io/edgehub/cache/identity"
)

// atAnAPIServer returns the token that an apiserver reads from a request.
func atAnAPIServer(t *testing.T, h http.Header) (read string) {
	t.Helper()
	a := bearertoken.New(authenticator.TokenFunc(func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		read = token
		return nil, false, nil
	}))
	_, _, _ = a.AuthenticateRequest((&http.Request{Header: h.Clone()}).WithContext(t.Context())) // it says that the token is not valid
	return read
}

var bearerHeaders = map[string]string{
	"":                     "",
	" ":                    "",
	"Bearer":               "",
	"Bearer ":              "",
	"Bearer x":             "x",
	"bEARER x":             "x",
	" Bearer x ":           "x",
	"Bearer  x":            "",
	"Bearer   ":            "",
	"Bearer x junk":        "x",
	"Bearer x  ":           "x",
	"Bearer x a.b.c d":     "x",
	"Bearer\tx":            "",
	"Bearer x\ty":          "x\ty",
	"Bearer,x":             "",
	"Bearer: x":            "",
	"Basic x":              "",
	"Basic Bearer x":       "",
	"Bearerx y":            "",
	"x":                    "",
	"\u00a0Bearer x\u00a0": "x",
	"Bearer \u00a0x":       "\u00a0x",
	"Bearer\u00a0x":        "",
	"\u2003Bearer x\u2003": "x",
	"Bearer x\x85":         "x\x85",
	"Bearer \x00":          "\x00",
}

func TestATokenIsParsedLikeInAnAPIServer(t *testing.T) {
	for header, want := range bearerHeaders {
		h := http.Header{"Authorization": {header}}
		if got, theirs := identity.Bearer(h), atAnAPIServer(t, h); got != want || theirs != want {
			t.Errorf("%q: got %q, an apiserver reads %q, want %q", header, got, theirs, want)
		}
	}
}

func FuzzBearer(f *testing.F) {
	for header := range bearerHeaders {
		f.Add(header)
	}
	f.Fuzz(func(t *testing.T, header string) {
		h := http.Header{"Authorization": {header}}
		if got, want := identity.Bearer(h), atAnAPIServer(t, h); got != want {
			t.Errorf("%q: got %q, and an apiserver reads %q", header, got, want)
		}
	})
}

func TestAmbiguousRequestsHaveNoToken(t *testing.T) {
	for name, h := range map[string]http.Header{
		"no header":           {},
		"two headers":         {"Authorization": {"Bearer a", "Bearer b"}},
		"the same one twice":  {"Authorization": {"Bearer a", "Bearer a"}},
		"an empty one before": {"Authorization": {"", "Bearer a"}},
	} {
		if got := identity.Bearer(h); got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
	for _, header := range []string{
		"Sec-WebSocket-Protocol", "Impersonate-User", "Impersonate-Group", "impersonate-extra-x%2fy", "Impersonate-Uid", "X-Remote-User", "x-remote-group",
	} {
		h := http.Header{"Authorization": {"Bearer a"}, "Accept": {"*/*"}}
		if identity.Ambiguous(h) {
			t.Fatal("a plain request is ambiguous")
		}
		if h.Set(header, ""); !identity.Ambiguous(h) {
			t.Errorf("%s may decide whose the answer is", header)
		}
	}
	if strings.Contains((&identity.Token{}).String(), "x") {
		t.Error("a token tells")
	}
}
