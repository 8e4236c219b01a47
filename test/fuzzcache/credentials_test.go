package fuzzcache

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

// credentials are headers that an attacker sends, and whom an apiserver takes the sender
// for: nil is nobody, or somebody who may read nothing.
type credentials struct {
	name   string
	header http.Header
	is     *account
	http1  bool // they need HTTP/1.1
}

// account is a service account with a token, and the namespaces that it may read.
type account struct {
	namespace, name, token string
	uid                    types.UID
	reads                  []string
}

// newAccount makes a service account, if it is not there, and a token of it.
func newAccount(t *testing.T, namespace, name string, reads ...string) *account {
	t.Helper()
	accounts := env.admins[0].CoreV1().ServiceAccounts(namespace)
	_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	made, err := accounts.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	a := &account{namespace: namespace, name: name, uid: made.UID, reads: reads}
	a.token = a.newToken(t)
	return a
}

// newToken returns another token, for the apiserver if no audience is named.
func (a *account) newToken(t *testing.T, audiences ...string) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	issued, err := env.admins[0].CoreV1().ServiceAccounts(a.namespace).CreateToken(t.Context(), a.name, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return issued.Status.Token
}

// username is what an apiserver calls the account.
func (a *account) username() string { return "system:serviceaccount:" + a.namespace + ":" + a.name }

// bearer is the header of a caller with a token.
func bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

// hostile returns what an attacker who holds the token of own sends to be taken for the
// victim, or to take something from it.
func hostile(t *testing.T, own, victim *account) []credentials {
	t.Helper()
	unsigned := forge(t, victim.token)
	none := unsignedToken(t, victim)
	authorization := func(values ...string) http.Header { return http.Header{"Authorization": values} }
	with := func(h http.Header, more http.Header) http.Header {
		for name, values := range more {
			h[name] = values
		}
		return h
	}
	websocket := func(token string) http.Header {
		encoded := base64.RawURLEncoding.EncodeToString([]byte(token))
		return http.Header{
			"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"},
			"Sec-Websocket-Key":      {base64.StdEncoding.EncodeToString([]byte("0123456789abcdef"))},
			"Sec-Websocket-Protocol": {"base64url.bearer.authorization.k8s.io." + encoded + ", v4.channel.k8s.io"},
		}
	}
	as := func(name, group string) http.Header {
		return http.Header{"Impersonate-User": {name}, "Impersonate-Group": {group}}
	}
	return []credentials{
		{name: "none", header: http.Header{}},
		{name: "garbage", header: authorization("Bearer garbage")},
		{name: "empty header", header: authorization("")},
		{name: "scheme alone", header: authorization("Bearer")},
		{name: "wrong signature", header: authorization("Bearer " + unsigned)},
		{name: "algorithm none", header: authorization("Bearer " + none)},
		{name: "two blanks before a forged token", header: authorization("Bearer  " + none)},
		{name: "tab before a forged token", header: authorization("Bearer\t" + none)},
		{name: "own token, forged one behind it", header: authorization("Bearer " + own.token + " " + none), is: own},
		{name: "forged token, own one behind it", header: authorization("Bearer " + none + " " + own.token)},
		{name: "lower case scheme, forged", header: authorization("bearer " + none)},
		{name: "lower case scheme, own", header: authorization("bearer " + own.token), is: own},
		{name: "own token", header: authorization("Bearer " + own.token), is: own},
		{name: "two headers, own first", header: authorization("Bearer "+own.token, "Bearer "+none), is: own},
		{name: "two headers, forged first", header: authorization("Bearer "+none, "Bearer "+own.token)},
		{name: "two headers, empty first", header: authorization("", "Bearer "+none)},
		{name: "basic, then forged", header: authorization("Basic dTpw", "Bearer "+none)},
		{name: "basic", header: authorization("Basic dTpw")},
		{name: "a list of credentials", header: authorization("Bearer " + own.token + ", Bearer " + none)},
		{name: "forged token, own one for WebSockets", header: with(authorization("Bearer "+none), websocket(own.token)), is: own, http1: true},
		{name: "two blanks, own token for WebSockets", header: with(authorization("Bearer  "+none), websocket(own.token)), is: own, http1: true},
		{name: "own token, forged one for WebSockets", header: with(authorization("Bearer "+own.token), websocket(none)), is: own, http1: true},
		{name: "forged token for WebSockets", header: websocket(none), http1: true},
		{name: "WebSocket protocol without an upgrade", header: http.Header{"Authorization": {"Bearer " + none}, "Sec-Websocket-Protocol": websocket(own.token)["Sec-Websocket-Protocol"]}},
		{name: "impersonation", header: with(authorization("Bearer "+own.token), as(victim.username(), "system:serviceaccounts"))},
		{name: "impersonation by a forged token", header: with(authorization("Bearer "+none), as("admin", "system:masters"))},
		{name: "headers of a front proxy", header: with(authorization("Bearer "+own.token), http.Header{"X-Remote-User": {victim.username()}, "X-Remote-Group": {"system:masters"}, "X-Remote-Uid": {string(victim.uid)}}), is: own},
		{name: "headers of a front proxy, two blanks", header: with(authorization("Bearer  "+none), http.Header{"X-Remote-User": {victim.username()}})},
		{name: "cookie", header: http.Header{"Cookie": {"token=" + victim.token}}},
		{name: "connection header that drops the token", header: http.Header{"Authorization": {"Bearer " + none}, "Connection": {"Authorization"}}, http1: true},
		{name: "for another audience", header: authorization("Bearer " + victim.newToken(t, "vault"))},
		{name: "expired", header: authorization("Bearer " + sign(t, serviceAccountKey(t), claims(victim, time.Now().Add(-2*time.Hour))))},
		{name: "signed by a foreign key", header: authorization("Bearer " + sign(t, foreignKey(t), claims(victim, time.Now())))},
	}
}

// forge spoils the signature of a token.
func forge(t *testing.T, token string) string {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("a token with %d parts", len(parts))
	}
	return parts[0] + "." + parts[1] + "." + base64.RawURLEncoding.EncodeToString(make([]byte, 64))
}

// unsignedToken has the claims of a user, and nobody has signed it.
func unsignedToken(t *testing.T, u *account) string {
	t.Helper()
	return encode(t, map[string]any{"alg": "none", "typ": "JWT"}) + "." + strings.Split(u.token, ".")[1] + ".c"
}

// claims are those of a token that was issued at a time, and is good for an hour.
func claims(u *account, issued time.Time) map[string]any {
	return map[string]any{
		"iss": "https://kubernetes.default.svc", "aud": []string{"https://kubernetes.default.svc"}, "sub": u.username(),
		"iat": issued.Unix(), "nbf": issued.Unix(), "exp": issued.Add(time.Hour).Unix(),
		"kubernetes.io": map[string]any{"namespace": u.namespace, "serviceaccount": map[string]any{"name": u.name, "uid": u.uid}},
	}
}

func encode(t *testing.T, part any) string {
	t.Helper()
	text, err := json.Marshal(part)
	if err != nil {
		t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// sign returns a JSON Web Token.
func sign(t *testing.T, key *ecdsa.PrivateKey, claims map[string]any) string {
	t.Helper()
	text := encode(t, map[string]any{"alg": "ES256", "typ": "JWT"}) + "." + encode(t, claims)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	signature := append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func foreignKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// serviceAccountKey is what the cluster signs tokens with.
func serviceAccountKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(env.Dir(), "pki", "service-account.key"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		t.Fatal("the key of service accounts is not in PEM")
	}
	if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
		if ec, ok := key.(*ecdsa.PrivateKey); ok {
			return ec
		}
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// What this test takes callers for has to be what the apiserver takes them for.
func TestCredentialsAreWhatTheApiserverTakesThemFor(t *testing.T) {
	config, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: env.AdminConfig().CAData}})
	if err != nil {
		t.Fatal(err)
	}
	own, victim := newAccount(t, metav1.NamespaceDefault, "own"), newAccount(t, metav1.NamespaceDefault, "victim")
	direct := &client{user: &user{w: &world{t: t}}, base: env.ServerURL()}
	for _, c := range hostile(t, own, victim) {
		t.Run(c.name, func(t *testing.T) {
			want := ""
			if c.is != nil {
				want = c.is.username()
			}
			direct.http = rawclient.New(config.Clone(), !c.http1)
			defer direct.http.CloseIdleConnections()
			if got := reviewed(t, direct.with(c.header)); got != want {
				t.Errorf("the apiserver takes the caller for %q, the test for %q", got, want)
			}
		})
	}
}

// reviewed is whom the apiserver takes a caller for, or "".
func reviewed(t *testing.T, c *client) string {
	t.Helper()
	a := c.do(t.Context(), http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews", asJSON, asJSON,
		[]byte(`{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}`))
	if a.err != nil || a.code != http.StatusCreated {
		return ""
	}
	var review authenticationv1.SelfSubjectReview
	if err := json.Unmarshal(a.body, &review); err != nil {
		t.Fatal(err)
	}
	if name := review.Status.UserInfo.Username; name != "system:anonymous" {
		return name
	}
	return ""
}
