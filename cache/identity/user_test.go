package identity

import (
	"encoding/base64"
	"net/http"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/cache/quota"
)

func TestKeysDifferByNameAndUID(t *testing.T) {
	users := []User{
		{"a", ""}, {"a", "1"}, {"a", "2"}, {"b", "1"}, {"", "a"}, {`a"#1`, ""}, {"a#1", ""}, {`a"`, "#1"}, {"node", ""}, {"a\n", ""}, {"system:serviceaccount:ns:a", "1"},
	}
	seen := map[string]User{"node": {}}
	for _, u := range users {
		key := u.Key()
		if other, ok := seen[key]; ok {
			t.Errorf("%+v has the key %s, like %+v", u, key, other)
		}
		seen[key] = u
	}
	for key, want := range map[string]string{
		"node": "node", User{"a b", "1"}.Key(): "a b#1", User{"a", ""}.Key(): "a", `user:"`: `user:"`,
	} {
		if got := Readable(key); got != want {
			t.Errorf("%s reads %q, want %q", key, got, want)
		}
	}
}

// jwt returns a JSON Web Token with these claims and no valid signature.
func jwt(claims string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

const issuedClaims = `{"sub":"system:serviceaccount:ns:a","exp":1795340000,"kubernetes.io":{"namespace":"ns","serviceaccount":{"name":"a","uid":"u"}}}`

func TestTheUserOfAnIssuedToken(t *testing.T) {
	want := User{"system:serviceaccount:ns:a", "u"}
	if got, ok := IssuedTo(jwt(issuedClaims), "ns", "a"); !ok || got != want {
		t.Errorf("got %+v, %t", got, ok)
	}
	for name, c := range map[string]struct{ token, namespace, name string }{
		"another name in the path":      {jwt(issuedClaims), "ns", "b"},
		"another namespace in the path": {jwt(issuedClaims), "other", "a"},
		"no name in the path":           {jwt(`{"sub":"system:serviceaccount::","kubernetes.io":{"serviceaccount":{"uid":"u"}}}`), "", ""},
		"another subject":               {jwt(`{"sub":"system:serviceaccount:ns:b","kubernetes.io":{"namespace":"ns","serviceaccount":{"name":"a","uid":"u"}}}`), "ns", "a"},
		"a subject without an account":  {jwt(`{"sub":"system:serviceaccount:ns:a"}`), "ns", "a"},
		"no UID":                        {jwt(`{"sub":"system:serviceaccount:ns:a","kubernetes.io":{"namespace":"ns","serviceaccount":{"name":"a"}}}`), "ns", "a"},
		"no JSON Web Token":             {"abc", "ns", "a"},
		"claims that are no JSON":       {jwt("{"), "ns", "a"},
		"claims that are no base64":     {"e30.!.c2ln", "ns", "a"},
	} {
		if got, ok := IssuedTo(c.token, c.namespace, c.name); ok {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestWhenATokenExpires(t *testing.T) {
	for token, want := range map[string]time.Time{
		jwt(issuedClaims):           time.Unix(1795340000, 0).UTC(),
		jwt(`{"exp":1795340000.9}`): time.Unix(1795340000, 0).UTC(),
		jwt(`{"exp":1e300}`):        {},
		jwt(`{"exp":-1}`):           {},
		jwt(`{"exp":"x"}`):          {},
		"abc":                       {},
	} {
		if got := expiry(token); !got.Equal(want) {
			t.Errorf("%s: %s, want %s", token, got, want)
		}
	}
}

func TestTheServiceAccountsOfANamespaceAreOneTenant(t *testing.T) {
	one := quota.Tenant(account("ns", "a").Key())
	for _, u := range []User{account("ns", "b"), {"system:serviceaccount:ns:a", "another"}, {"system:serviceaccount:ns:", ""}} {
		if got := quota.Tenant(u.Key()); got != one {
			t.Errorf("%+v is of %s, want %s", u, got, one)
		}
	}
	seen := map[string]User{one: account("ns", "a")}
	for _, u := range []User{
		account("n", "s"), account("ns2", "a"), {"system:serviceaccount:ns", ""}, {"system:serviceaccount:", ""}, {"system:serviceaccount", ""},
		{"ns", ""}, {"a", "1"}, {"a", "2"}, {"system:node:a:b", ""}, {"node", ""}, {`"system:serviceaccount:ns:a`, ""},
	} {
		tenant := quota.Tenant(u.Key())
		if other, ok := seen[tenant]; ok || tenant == quota.Node {
			t.Errorf("%+v is of %s, like %+v", u, tenant, other)
		}
		seen[tenant] = u
	}
	if key := account("ns", "a").Key(); testing.AllocsPerRun(100, func() { quota.Tenant(key) }) > 0 {
		t.Error("it allocates")
	}
}

func TestAClaimedAccountIsThatOfTheSubject(t *testing.T) {
	bearer := func(claims string) string {
		return "Bearer e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
	}
	for name, tt := range map[string]struct {
		headers []string
		want    string
	}{
		"a service account":         {[]string{bearer(`{"sub":"system:serviceaccount:kube-system:kube-proxy"}`)}, "kube-system/kube-proxy"},
		"a user":                    {[]string{bearer(`{"sub":"kube-system/kube-proxy"}`)}, ""},
		"a subject with more parts": {[]string{bearer(`{"sub":"system:serviceaccount:a:b:c"}`)}, "a/b:c"},
		"two headers":               {[]string{bearer(`{"sub":"system:serviceaccount:a:b"}`), "Bearer x"}, ""},
		"no token of this kind":     {[]string{"Bearer x"}, ""},
		"no JSON":                   {[]string{bearer(`x`)}, ""},
		"nothing":                   {nil, ""},
	} {
		if got := ClaimedAccount(http.Header{"Authorization": tt.headers}); got != tt.want {
			t.Errorf("%s: got %q", name, got)
		}
	}
}
