package hub

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/support"
	"github.com/edgehub-io/edgehub/ota/api"
)

func TestThePageIsForItsOwnOriginAlone(t *testing.T) {
	n := newNode(t, echoToken)
	n.start(t)
	if code, body := n.ask(t, http.MethodGet, api.Page, "", "Sec-Fetch-Site", "none"); code != 200 || !strings.Contains(body, "/page/app.js") {
		t.Errorf("the page: %d %.100q", code, body)
	}
	for method, paths := range map[string][]string{
		http.MethodHead: {api.Page, api.Apps},
		http.MethodGet:  {api.Page, "/page/app.js", api.Pods, api.Apps, api.Node, api.Events, api.Stream, api.Bundle},
		http.MethodPost: {api.WebCodes, api.WebTokens},
	} {
		for _, path := range paths {
			for name, headers := range map[string][]string{ // package csrf knows more
				"a rebound name":              {"Host", "evil.example.com:10267"},
				"a frame in a page elsewhere": {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Dest", "iframe"},
				"a page of another port":      {"Origin", "http://127.0.0.1:1", "Sec-Fetch-Site", "same-site"},
			} {
				if code, body := n.ask(t, method, path, "", headers...); code != 403 || strings.Count(body, "\n") != 1 && method != http.MethodHead {
					t.Errorf("%s %s of %s: %d %.200q, want 403 and one line", method, path, name, code, body)
				}
			}
		}
	}
}

// What an owner does goes through the page to the API, which finds no such pod.
func TestABrowserNeedsATokenAndAProgramNone(t *testing.T) {
	n := newNode(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no such pod", http.StatusNotFound) })
	_, stop := n.start(t)
	own := "http://" + n.config.ServeAddress
	change := func(headers ...string) int {
		t.Helper()
		code, _ := n.ask(t, http.MethodPost, "/openyurt.io/v1/namespaces/d/pods/p/upgrade", "", headers...)
		return code
	}
	if code := change(); code == 401 || code == 403 {
		t.Errorf("a program: %d", code)
	}
	if code := change("Origin", own, api.TokenHeader, "guessed"); code != 401 {
		t.Errorf("a browser with a guessed token: %d", code)
	}
	if code := change("User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:52.0) Gecko/20100101 Firefox/52.0"); code != 401 {
		t.Errorf("a browser that sends neither Origin nor Sec-Fetch-Site: %d", code)
	}
	for method, path := range map[string]string{http.MethodDelete: "/openyurt.io/v1/namespaces/d/pods/p/hold", http.MethodGet: api.Bundle} {
		if code, _ := n.ask(t, method, path, "", "Sec-Fetch-Site", "same-origin"); code != 401 {
			t.Errorf("%s %s of a browser without a token: %d", method, path, code)
		}
	}
	status, code := n.ask(t, http.MethodPost, api.WebCodes, "")
	if status != 200 {
		t.Fatalf("a code: %d %s", status, code)
	}
	status, body := n.ask(t, http.MethodPost, api.WebTokens, code, "Origin", own)
	var token api.Token
	if err := json.Unmarshal([]byte(body), &token); err != nil || status != 200 {
		t.Fatalf("the token: %d %s", status, body)
	}
	if status, body := n.ask(t, http.MethodPost, api.WebTokens, code, "Origin", own); status != 403 || strings.Contains(body, token.Token) {
		t.Errorf("the code again: %d %s", status, body)
	}
	if code := change("Origin", own, api.TokenHeader, token.Token); code == 401 || code == 403 {
		t.Errorf("a browser with a token: %d", code)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	n.start(t)
	if code := change("Origin", own, api.TokenHeader, token.Token); code == 401 || code == 403 {
		t.Errorf("after a restart: %d", code)
	}
	// edgehub install takes no folder with other files in it.
	files, err := os.ReadDir(n.config.RootDir)
	if err != nil || len(files) < 5 {
		t.Errorf("the hub's folder has %v: %v", files, err)
	}
	for _, file := range files {
		if !slices.Contains(config.RootNames(), file.Name()) {
			t.Errorf("%s is in the hub's folder, and not among config.RootNames", file.Name())
		}
	}
}

// Beyond loopback a browser needs a client certificate, and then a token, too.
func TestABrowserOverTLS(t *testing.T) {
	n := newNode(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no such pod", http.StatusNotFound) })
	ca := newIssuer(t)
	n.withClientCAs(t, ca)
	n.start(t)
	own := "https://" + n.config.ServeAddress
	stranger, owner := n.clientOf(t, nil), n.clientOf(t, ca.client(t, x509.ExtKeyUsageClientAuth, time.Hour))
	for method, paths := range map[string][]string{
		http.MethodGet:  {api.Page, "/page/app.js", api.Apps, api.Node, api.Events, api.Stream, api.Bundle},
		http.MethodPost: {api.WebCodes, api.WebTokens},
	} {
		for _, path := range paths {
			if code, body := sendTo(t, stranger, method, own+path, ""); code != 401 || strings.Count(body, "\n") != 1 {
				t.Errorf("%s %s without a certificate: %d %.200q", method, path, code, body)
			}
			if code, _ := sendTo(t, owner, method, own+path, "", "Origin", "https://evil.example.com", "Sec-Fetch-Site", "cross-site"); code != 403 {
				t.Errorf("%s %s of another origin, in a browser with the certificate: %d", method, path, code)
			}
		}
	}
	if code, body := sendTo(t, owner, http.MethodGet, own+api.Page, "", "Sec-Fetch-Site", "none"); code != 200 || !strings.Contains(body, "/page/app.js") {
		t.Errorf("the page: %d %.100q", code, body)
	}
	const upgrade = "/openyurt.io/v1/namespaces/d/pods/p/upgrade"
	if code, _ := sendTo(t, owner, http.MethodPost, own+upgrade, "", "Origin", own, "Sec-Fetch-Site", "same-origin"); code != 401 {
		t.Errorf("a change without a token: %d", code)
	}
	_, code := sendTo(t, owner, http.MethodPost, own+api.WebCodes, "")
	_, body := sendTo(t, owner, http.MethodPost, own+api.WebTokens, code, "Origin", own)
	var token api.Token
	if err := json.Unmarshal([]byte(body), &token); err != nil {
		t.Fatalf("the token: %s", body)
	}
	if code, _ := sendTo(t, owner, http.MethodPost, own+upgrade, "", "Origin", own, api.TokenHeader, token.Token); code == 401 || code == 403 {
		t.Errorf("a change with a token: %d", code)
	}
}

// Without the cloud the hub accepts Events of any pod with a token, which an apiserver may refuse later: a pod
// must not write to the owner's page by that.
func TestEventsOnThePageAreTheNodes(t *testing.T) {
	n := newNode(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.Copy(w, r.Body)
	})
	n.start(t)
	report := func(name string, headers ...string) {
		t.Helper()
		event := `{"kind":"Event","apiVersion":"v1","metadata":{"namespace":"d","name":"` + name + `"},"involvedObject":{"kind":"Pod","namespace":"d","name":"p"},"reason":"Why","message":"<script>alert(1)</script>"}`
		headers = append(headers, "Content-Type", "application/json")
		if code, body := sendTo(t, http.DefaultClient, http.MethodPost, "http://"+n.config.ProxyAddress+"/api/v1/namespaces/d/events", event, headers...); code != 201 {
			t.Fatalf("an Event: %d %s", code, body)
		}
	}
	report("of-a-pod", "Authorization", "Bearer pods-token")
	report("of-the-node")
	_, body := n.ask(t, http.MethodGet, api.Events, "")
	var list api.EventList
	if err := json.Unmarshal([]byte(body), &list); err != nil || len(list.Items) != 1 || list.Items[0].Message != "<script>alert(1)</script>" {
		t.Errorf("%v: %s", err, body)
	}
	if strings.Contains(body, "<") { // JSON has it escaped, for whoever takes it for HTML
		t.Errorf("a tag is there as it is: %s", body)
	}
}

func TestAStreamDoesNotKeepTheHubFromStopping(t *testing.T) {
	n := newNode(t, echoToken)
	n.config.ShutdownGrace = time.Hour // longer than any test may take
	_, stop := n.start(t)
	res, err := http.Get("http://" + n.config.ServeAddress + api.Stream)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(res.Body)
	if err != nil {
		t.Errorf("the stream was cut: %v", err)
	}
	for _, want := range []string{"event: apps\n", "event: node\n", `"node":"n1"`, "event: events\n"} {
		if !strings.Contains(string(content), want) {
			t.Errorf("the stream lacks %q: %s", want, content)
		}
	}
}

// The node shows when a certificate from a flag or the kubeconfig expires; the hub's own never does.
func TestCertificatesThatExpire(t *testing.T) {
	n, pair := newNode(t, echoToken), newIssuer(t).client(t, x509.ExtKeyUsageServerAuth, time.Hour)
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	n.write(t, "mine.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
	n.write(t, "mine.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Leaf.Raw}))
	want := func(names ...string) {
		t.Helper()
		h, err := n.hub()
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		var got []string
		for _, c := range h.state.certificates() {
			if got = append(got, c.Name); !c.Expires.Equal(pair.Leaf.NotAfter) {
				t.Errorf("%s expires %v", c.Name, c.Expires)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, names) {
			t.Errorf("got %q, want %q", got, names)
		}
	}
	want()
	n.config.TLSCertFile, n.config.TLSKeyFile = n.path("mine.crt"), n.path("mine.key")
	want("pods")
	n.config.ServeClientCAFile = n.path("ca.crt")
	want("api", "pods")
	text, err := os.ReadFile(n.config.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	n.write(t, "kubeconfig", bytes.Replace(text, []byte("tokenFile: token"), []byte("client-certificate: mine.crt, client-key: mine.key"), 1))
	want("api", "node", "pods")
}

func TestTheNodeIsDescribed(t *testing.T) {
	n := newNode(t, echoToken)
	h, _ := n.start(t)
	describe := func() (node api.NodeState, text string) {
		t.Helper()
		code, text := n.ask(t, http.MethodGet, api.Node, "")
		if err := json.Unmarshal([]byte(text), &node); err != nil || code != http.StatusOK {
			t.Fatalf("%d %s, %v", code, text, err)
		}
		return node, text
	}
	n.askCloud(t, "/version")
	began := time.Now()
	got, text := describe()
	if got.Node != "n1" || got.Version != "test" || got.Time.Before(began) || !got.Online || got.Ready != "" || got.Pulls || got.Cache.Trouble != "" || got.Traffic.Sent == 0 {
		t.Errorf("got %s", text)
	}
	if len(got.Disks) != 1 || got.Disks[0].Total == 0 || got.Disks[0].Path != n.config.RootDir || !slices.Equal(got.Disks[0].Holds, []string{"hub"}) {
		t.Errorf("disks are %+v", got.Disks)
	}
	if !strings.Contains(text, `"certificates":[]`) || !strings.Contains(text, `"missing":[]`) {
		t.Errorf("a list of none is null: %s", text)
	}
	n.loseCloud(t, h)
	if got, text := describe(); got.Online || got.Since.Before(began.Truncate(time.Second)) {
		t.Errorf("offline: %s", text)
	}
	h.state.serving.Store(false)
	if got, text := describe(); got.Ready != "the hub is stopping" {
		t.Errorf("a hub that stops: %s", text)
	}
}

func TestASupportBundleHasTheStateAndNoSecrets(t *testing.T) {
	n := newNode(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"Secret","apiVersion":"v1","metadata":{"namespace":"d","name":"s","resourceVersion":"1"},"data":{"k":"c2VzYW1l"}}`)
	})
	var lines support.Ring
	h, err := New(n.config, "edgehub/test", prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	h.AddToBundle(support.Part{Name: "log.txt", Write: lines.CopyTo}, support.Flags([]string{"--server-addr=https://admin:flags-password@10.0.0.1:6443", "--bootstrap-token", "flags-token"}))
	n.run(t, h)
	read := func(query string, headers ...string) string {
		t.Helper()
		_, body := sendTo(t, http.DefaultClient, http.MethodGet, "http://"+n.config.ProxyAddress+"/api/v1/namespaces/d/secrets/s"+query, "", append(headers, "User-Agent", "kubelet/v1.34.0")...)
		return body
	}
	if secret := read(""); !strings.Contains(secret, "c2VzYW1l") {
		t.Fatalf("the Secret: %s", secret)
	}
	read("?token=query-token", "Authorization", "Bearer pods-token")
	_, code := n.ask(t, http.MethodPost, api.WebCodes, "")
	_, token := n.ask(t, http.MethodPost, api.WebTokens, code)
	_, unused := n.ask(t, http.MethodPost, api.WebCodes, "")
	n.ask(t, http.MethodPost, api.WebTokens, `{"code":"guessed-code"}`)
	n.ask(t, http.MethodDelete, "/openyurt.io/v1/namespaces/d/pods/p/hold", "", "Origin", "http://"+n.config.ServeAddress, api.TokenHeader, "guessed-token")
	_, content := n.ask(t, http.MethodGet, api.Bundle, "")
	unzipped, err := gzip.NewReader(strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	parts := map[string]string{}
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		part, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		parts[header.Name] = string(part)
	}
	for name, want := range map[string]string{
		"node.json": `"node": "n1"`, "apps.json": `"items"`, "events.json": `"items"`, "cache.json": `secrets`, "metrics.txt": "edgehub_upstream_up", "log.txt": "hub serves", "flags.txt": "REDACTED",
	} {
		if !strings.Contains(parts[name], want) {
			t.Errorf("%s lacks %q: %.300s", name, want, parts[name])
		}
	}
	var given api.Token
	var used, waits api.Code
	for text, into := range map[string]any{token: &given, code: &used, unused: &waits} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	for name, part := range parts {
		for _, secret := range []string{
			"first-token", "pods-token", "query-token", "c2VzYW1l", "sesame", given.Token, used.Code, waits.Code, "guessed-code", "guessed-token",
			"flags-password", "flags-token", "PRIVATE KEY",
		} {
			if strings.Contains(part, secret) {
				t.Errorf("%s has the secret %q", name, secret)
			}
		}
	}
}
