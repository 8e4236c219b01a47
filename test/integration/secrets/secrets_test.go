package secrets

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/freeport"
	"github.com/edgehub-io/edgehub/test/internal/poll"
	"github.com/edgehub-io/edgehub/test/internal/secretscan"
)

// A node that is known by a certificate, whose cache is not encrypted: callers' tokens
// are on disk as salted hashes only, and the node's key and other people's passwords
// not at all.
func testClear(t *testing.T, env *environment) {
	t.Helper()
	r := newRig(t, env)
	_, keyFile := r.hub.IdentifyAs(env.cluster, "system:nodes")
	r.plantKey("the node's private key", keyFile)
	r.use()
	r.hub.Stop()
	r.look()
	r.lookOnDisk(r.secrets)
	// What is looked for would be found: objects are there in clear.
	for what, secret := range r.objects {
		found := false
		for _, text := range r.onDisk() {
			found = found || len(secretscan.Found(text, secret)) > 0
		}
		if !found {
			r.Errorf("%s is not on disk, where it was expected", what)
		}
	}
}

// A node that is known by a token, whose cache is encrypted: nothing at all is on disk.
func testSealed(t *testing.T, env *environment) {
	t.Helper()
	const key = "planted-key-of-just-32-bytes-Zq7"
	keyFile := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(keyFile, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, env, "--cache-encryption-key-file="+keyFile)
	r.plant("the cache's key", key)
	r.hub.Identify(
		&clientcmdapi.Cluster{Server: env.cluster.ServerURL(), CertificateAuthority: env.cluster.CAFile()},
		&clientcmdapi.AuthInfo{Token: r.plant("the node's token", r.issue())})
	r.use()
	r.hub.Stop()
	r.look()
	r.lookOnDisk(r.secrets)
	r.lookOnDisk(r.objects)
}

// A proxy on the way that wants a password, and is not there.
func testProxy(t *testing.T, env *environment) {
	t.Helper()
	r := newRig(t, env)
	password := r.plant("the proxy's password", "planted-proxy-Pa55word")
	certFile, keyFile, err := env.cluster.ClientCert(r.hub.User, "system:nodes")
	r.must(err)
	r.hub.Identify(
		&clientcmdapi.Cluster{
			Server: env.cluster.ServerURL(), CertificateAuthority: env.cluster.CAFile(),
			ProxyURL: "http://proxy-user:" + password + "@" + freeport.Address(t),
		},
		&clientcmdapi.AuthInfo{ClientCertificate: certFile, ClientKey: keyFile})
	r.hub.Start()
	r.callers()
	r.ownAPI()
	r.hub.Stop()
	r.look()
	r.lookOnDisk(r.secrets)
}

// use has every port work and fail, with the cloud and without.
func (r *rig) use() {
	r.Helper()
	data := "planted-data-of-a-secret"
	r.objects["a Secret's data"] = data
	pod := r.addPod(data)
	r.hub.Start()

	secret := "/api/v1/namespaces/" + r.namespace + "/secrets/planted"
	reads := func(when string) {
		r.Helper()
		code, body := r.send(http.MethodGet, r.hub.Plain+secret, "")
		if code != http.StatusOK || !strings.Contains(body, base64.StdEncoding.EncodeToString([]byte(data))) {
			r.Fatalf("%s, the node reads its Secret: %d %s", when, code, body)
		}
	}
	reads("with the cloud")
	r.requestToken(pod.Name, string(pod.UID))
	r.callers()
	r.ownAPI()

	r.must(r.hub.Link.Refuse())
	r.hub.Link.Reset()
	poll.Eventually(r.T, "the hub is offline", func() bool {
		r.send(http.MethodGet, r.hub.Plain+"/version", "") // it notices when it is asked
		_, body := r.send(http.MethodGet, r.hub.API+"/v1/readyz", "")
		return strings.Contains(body, "offline")
	})
	reads("without the cloud")
	r.requestToken(pod.Name, string(pod.UID))
	r.callers()
	r.ownAPI()

	r.hub.Stop() // what is on disk is read again
	r.hub.Start()
	reads("after a restart without the cloud")
	r.callers()
	r.must(r.hub.Link.Up())
}

// requestToken is what kubelet does for each pod.
func (r *rig) requestToken(pod, uid string) {
	r.Helper()
	request := fmt.Sprintf(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":3607,"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":%q,"uid":%q}}}`, pod, uid)
	code, body := r.send(http.MethodPost, r.hub.Plain+"/api/v1/namespaces/"+r.namespace+"/serviceaccounts/default/token", request, "Content-Type", "application/json")
	var answer authenticationv1.TokenRequest
	if err := json.Unmarshal([]byte(body), &answer); code/100 != 2 || err != nil || answer.Status.Token == "" {
		r.Fatalf("a pod's token: %d %s", code, body)
	}
	r.objects["a token that was issued"] = answer.Status.Token
}

// callers come with credentials of all kinds, good and bad, to each port.
func (r *rig) callers() {
	r.Helper()
	bad := r.plant("a caller's bad token", "planted-token-of-a-stranger")
	jwt := r.plant("a caller's forged token", "eyJhbGciOiJub25lIn0.eyJpc3MiOiJ4Iiwic3ViIjoicGxhbnRlZCJ9.cGxhbnRlZC1zaWduYXR1cmU")
	basic := r.plant("a caller's password", "planted-basic-Pa55word")
	socket := r.plant("a WebSocket's token", "planted-web-socket-token")
	query := r.plant("a token in a query", "planted-query-token")
	cookie := r.plant("a cookie", "planted-cookie-of-a-session")
	body := r.plant("a password in a body", "planted-body-Pa55word")
	path := "/api/v1/namespaces/" + r.namespace
	secure := fmt.Sprintf("https://127.0.0.1:%d", r.hub.SecurePort)
	for _, port := range []string{r.hub.Plain, secure, r.hub.API} {
		for _, credentials := range [][]string{
			nil,
			{"Authorization", "Bearer " + r.account},
			{"Authorization", "Bearer " + bad},
			{"Authorization", "Bearer " + jwt},
			{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("user:"+basic))},
			{"Authorization", bad}, // no scheme
			{"Authorization", "Bearer " + bad, "Connection", "Authorization"},
			{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "eA==", "Sec-WebSocket-Protocol", webSocketToken(socket)},
			{"Cookie", "session=" + cookie, "Authorization", "Bearer " + bad},
		} {
			for _, what := range []string{"/configmaps", "/pods/p/exec?command=" + query + "&access_token=" + query, "/pods/none?token=" + query, "/pods?limit=x&token=" + query} {
				r.send(http.MethodGet, port+path+what, "", credentials...)
			}
			r.send(http.MethodPost, port+path+"/secrets", `{"apiVersion":"v1","kind":"Secret","stringData":{"x":"`+body+`"},"type":7}`, append([]string{"Content-Type", "application/json"}, credentials...)...)
		}
	}
}

// ownAPI checks all that the hub serves about itself.
func (r *rig) ownAPI() {
	r.Helper()
	for _, path := range []string{"/v1/healthz", "/v1/readyz", "/metrics", "/debug/cache", "/openyurt.io/v1/imagepulls", "/none",
		"/openyurt.io/v1/namespaces/" + r.namespace + "/pods/p/imagepull", "/openyurt.io/v1/namespaces/" + r.namespace + "/pods/p/imagepull?watch=perhaps"} {
		r.send(http.MethodGet, r.hub.API+path, "", "Authorization", "Bearer "+r.account)
		r.send(http.MethodPost, r.hub.API+path, r.secrets["a password in a body"], "Authorization", "Bearer "+r.account)
	}
	r.ownersPage()
}

// ownersPage looks at what the owner's page shows. Codes and tokens are for those alone who asked for them. What a
// support bundle has besides, package hub looks at.
func (r *rig) ownersPage() {
	r.Helper()
	r.given(api.WebCodes, "", "code") // is not used
	token := r.given(api.WebTokens, fmt.Sprintf(`{"code":%q}`, r.given(api.WebCodes, "", "code")), "token")
	r.send(http.MethodPost, r.hub.API+api.WebTokens, fmt.Sprintf(`{"code":%q}`, r.plant("a code that was guessed", "planted-guess-of-a-code")))
	for _, path := range []string{api.Page, api.Apps, api.Node, api.Events} {
		r.send(http.MethodGet, r.hub.API+path, "", "Authorization", "Bearer "+r.account)
	}
	for _, token := range []string{token, r.plant("a token that was guessed", "planted-guess-of-a-token")} {
		r.send(http.MethodPost, r.hub.API+"/openyurt.io/v1/namespaces/"+r.namespace+"/pods/none/upgrade", "", "Origin", r.hub.API, api.TokenHeader, token)
	}
}

// given returns a field of an answer of the page, as a secret that nothing else may have.
func (r *rig) given(path, body, field string) string {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, r.hub.API+path, strings.NewReader(body))
	r.must(err)
	res, err := insecure().Do(req)
	r.must(err)
	defer res.Body.Close()
	var answer map[string]string
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil || answer[field] == "" {
		r.Fatalf("POST %s: %s, %v", path, res.Status, err)
	}
	return r.plant(fmt.Sprintf("the page's %s, %d", field, len(r.secrets)), answer[field])
}

// plantKey plants each line of a PEM file.
func (r *rig) plantKey(what, file string) {
	r.Helper()
	text, err := os.ReadFile(file)
	r.must(err)
	block, _ := pem.Decode(text)
	r.plant(what, string(block.Bytes))
	for i, line := range strings.Split(string(text), "\n") {
		if len(line) >= 16 && !strings.HasPrefix(line, "-") {
			r.plant(fmt.Sprintf("%s, line %d", what, i), line)
		}
	}
}
