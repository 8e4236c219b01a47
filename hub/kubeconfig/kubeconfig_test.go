package kubeconfig

import (
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

func TestHTTPSProxyIsRefused(t *testing.T) {
	choose := onlyHTTPProxy(http.ProxyURL(&url.URL{Scheme: "https", Host: "proxy:3128", User: url.UserPassword("u", "secret")}))
	_, err := choose(&http.Request{URL: &url.URL{}})
	if err == nil || !strings.Contains(err.Error(), "http://") || strings.Contains(err.Error(), "secret") {
		t.Errorf("error %v", err)
	}
}
