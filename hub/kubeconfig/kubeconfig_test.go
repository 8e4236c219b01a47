package kubeconfig

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEmptyKubeconfigIsNotThePodsOwnIdentity(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	if id, err := Load(file); err == nil {
		t.Errorf("an empty kubeconfig gives an identity at %s", id.Server)
	}
}

// A password in a wrong place is a secret, too.
func TestAnUnusableKubeconfigIsExplainedWithoutItsSecrets(t *testing.T) {
	const secret = "PLANTED-b7d1"
	const rest = "\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n"
	const server = "server: 'https://127.0.0.1:6443'"
	kubeconfig := func(cluster, user string) string {
		return "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {" + cluster + "}}]\nusers: [{name: u, user: {" + user + "}}]" + rest
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(filepath.Join(dir, "empty"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ text, says string }{
		"no YAML":                                  {"{{", ""},
		"no user":                                  {kubeconfig(server, ""), "neither a client certificate nor a token"},
		"an empty token file":                      {kubeconfig(server, "tokenFile: empty"), "is empty"},
		"a missing certificate":                    {kubeconfig(server, "client-certificate: gone.crt, client-key: gone.key"), "gone.crt"},
		"a password in the server":                 {kubeconfig("server: 'https://u:"+secret+"@h:6443'", "token: t"), ""},
		"a password in a server that is none":      {kubeconfig("server: 'https://u:"+secret+"@h h:6443'", "token: t"), ""},
		"a token in the server's query":            {kubeconfig("server: 'https://h:6443/?token="+secret+"'", "token: t"), ""},
		"a password in a server over HTTP":         {kubeconfig("server: 'http://u:"+secret+"@h'", "token: t"), "https, not http"},
		"a password in a proxy that is none":       {kubeconfig(server+", proxy-url: 'http://u:"+secret+"@h h'", "token: t"), ""},
		"a password in a proxy with a bad escape":  {kubeconfig(server+", proxy-url: 'http://u:"+secret+"%zz@h'", "token: t"), ""},
		"a password in a proxy of no scheme":       {kubeconfig(server+", proxy-url: 'ftp://u:"+secret+"@h'", "token: t"), ""},
		"a user name and a password":               {kubeconfig(server, "username: u, password: "+secret), "password"},
		"a token that is a YAML alias":             {kubeconfig(server, "token: *"+secret), ""},
		"a token that is a list":                   {kubeconfig(server, "token: ["+secret+"]"), ""},
		"a token that does not end":                {kubeconfig(server, "token: \""+secret), ""},
		"a token and a missing context":            {strings.Replace(kubeconfig(server, "token: "+secret), "user: u}", "user: gone}", 1), ""},
		"a key that is not base64":                 {kubeconfig(server, "client-certificate-data: eA==, client-key-data: '"+secret+"'"), ""},
		"a key that is none":                       {kubeconfig(server, "client-certificate-data: eA==, client-key-data: "+base64.StdEncoding.EncodeToString([]byte(secret))), ""},
		"a key where its path should be":           {kubeconfig(server, "client-certificate: x.crt, client-key: '-----BEGIN PRIVATE KEY----- "+secret+"'"), ""},
		"a token file and a password":              {kubeconfig(server, "tokenFile: gone, password: "+secret+", username: u"), ""},
		"a credential plugin":                      {kubeconfig(server, "exec: {apiVersion: client.authentication.k8s.io/v1, command: x, interactiveMode: Never}"), "credential plugins"},
		"a credential plugin's environment":        {kubeconfig(server, "exec: {command: x, env: [{name: A, value: "+secret+"}]}"), ""},
		"an auth provider's configuration":         {kubeconfig(server, "auth-provider: {name: x, config: {access-token: "+secret+"}}"), ""},
		"a certificate with a token in its place":  {kubeconfig(server, "client-certificate-data: "+secret+", client-key-data: eA=="), ""},
		"a CA with a token in its place":           {kubeconfig(server+", certificate-authority-data: "+base64.StdEncoding.EncodeToString([]byte(secret)), "token: t"), ""},
		"a token that is a number with a fraction": {kubeconfig(server, "token: 1.5, password: "+secret), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Load(file)
			if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), tt.says) {
				t.Fatalf("error %v, want one that names the file and says %q", err, tt.says)
			}
			if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), base64.StdEncoding.EncodeToString([]byte(secret))) {
				t.Errorf("says %v", err)
			}
		})
	}
}

func TestProxiesThatAreRefused(t *testing.T) {
	for scheme, ok := range map[string]bool{"http": true, "https": true, "socks5": true, "socks5h": true, "socks4": false, "": false} {
		address := &url.URL{Scheme: scheme, Host: "proxy:3128", User: url.UserPassword("u", "secret")}
		proxy, err := proxyOf(http.ProxyURL(address))(&http.Request{URL: &url.URL{}})
		switch {
		case ok && (err != nil || proxy != address):
			t.Errorf("%s: %v, error %v", scheme, proxy, err)
		case !ok && (err == nil || !strings.Contains(err.Error(), "socks5h://") || strings.Contains(err.Error(), "secret")):
			t.Errorf("%s: error %v", scheme, err)
		}
	}
}

func TestNamesOfAHub(t *testing.T) {
	name := NewHubName()
	for in, want := range map[string]bool{
		name: true, NewHubName(): true, "": false, "localhost": false, "127.0.0.1": false, name[1:]: false, name + ".": false,
		name + ".example.com": false, "a." + name[2:]: false, "edgehub.invalid": false, strings.Repeat("a", 26) + ".example.com": false,
	} {
		if got := IsHubName(in); got != want {
			t.Errorf("%q: %t", in, got)
		}
	}
	if name == NewHubName() {
		t.Error("it can be guessed")
	}
}
