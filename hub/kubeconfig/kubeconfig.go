package kubeconfig

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"unicode"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/edgehub-io/edgehub/proxy/upstream"
)

// Identity is the node's identity as a kubeconfig has it.
type Identity struct {
	Server *url.URL // of the kubeconfig's current context
	Creds  *upstream.Credentials
	CAPEM  []byte // the apiserver's CAs; empty: the system's
	// Digest is equal for equal contents of the kubeconfig and the files it
	// names.
	Digest [32]byte
}

// Load reads the kubeconfig at path and all files that it refers to.
func Load(path string) (*Identity, error) {
	config, err := loadConfig(path)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	server, err := ParseServer(config.Host)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: server %w", path, err)
	}
	if err := checkSupported(config); err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	if err := readFiles(config); err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	id := &Identity{Server: server, CAPEM: config.CAData, Digest: digestOf(raw, config), Creds: &upstream.Credentials{
		ServerName: config.ServerName,
		Insecure:   config.Insecure,
		Proxy:      config.Proxy,
		Token:      strings.TrimSpace(config.BearerToken),
	}}
	if id.Creds.Proxy == nil {
		id.Creds.Proxy = http.ProxyFromEnvironment
	}
	id.Creds.Proxy = onlyHTTPProxy(id.Creds.Proxy)
	if len(config.CAData) > 0 {
		if id.Creds.CAs, err = ParseCAs(config.CAData); err != nil {
			return nil, fmt.Errorf("kubeconfig %s: certificate-authority: %w", path, err)
		}
	}
	if len(config.CertData) > 0 {
		certificate, err := tls.X509KeyPair(config.CertData, config.KeyData)
		if err != nil {
			return nil, fmt.Errorf("kubeconfig %s: client certificate: %w", path, err)
		}
		id.Creds.Certificate = &certificate
	}
	if id.Creds.Certificate == nil {
		if err := checkToken(id.Creds.Token); err != nil {
			return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
		}
	}
	return id, nil
}

// checkToken returns why a token cannot be sent in a header, or nil.
func checkToken(token string) error {
	if token == "" {
		return errors.New("its token is blank: the hub would be nobody to the apiserver")
	}
	if strings.ContainsFunc(token, unicode.IsControl) {
		return errors.New("its token has a line break or another character that no header can have")
	}
	return nil
}

// loadConfig reads the kubeconfig's current context. It does not use client-go's deferred
// loader, which takes an empty file, such as one that is being written, for the in-cluster
// configuration.
func loadConfig(path string) (*rest.Config, error) {
	file, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return nil, redactQuotes(err)
	}
	if err := clientcmd.ResolveLocalPaths(file); err != nil {
		return nil, redactSecrets(err, file)
	}
	config, err := clientcmd.NewDefaultClientConfig(*file, nil).ClientConfig()
	if err != nil {
		return nil, redactSecrets(err, file)
	}
	return config, nil
}

// onlyHTTPProxy rejects HTTP proxies that are reached over TLS: they would be presented with
// the node's client certificate.
func onlyHTTPProxy(choose func(*http.Request) (*url.URL, error)) func(*http.Request) (*url.URL, error) {
	return func(r *http.Request) (*url.URL, error) {
		proxy, err := choose(r)
		if err == nil && proxy != nil && proxy.Scheme != "http" {
			return nil, fmt.Errorf("HTTP proxy %s: only proxies at http:// are supported", proxy.Redacted())
		}
		return proxy, err
	}
}

// checkSupported rejects ways to authenticate that the hub would silently ignore.
func checkSupported(config *rest.Config) error {
	switch {
	case config.ExecProvider != nil || config.AuthProvider != nil:
		return errors.New("credential plugins (exec, auth-provider) are not supported: name a client certificate or a token")
	case config.Username != "":
		return errors.New("user name and password are not supported: name a client certificate or a token")
	case config.Impersonate.UserName != "":
		return errors.New("impersonation is not supported: the hub has to be known as the node itself")
	case config.CertFile == "" && len(config.CertData) == 0 && config.BearerToken == "" && config.BearerTokenFile == "":
		return errors.New("it has neither a client certificate nor a token: the hub needs the node's credentials")
	}
	return nil
}

// ParseCAs returns the certificates in pem as a pool. It is an error if there are none.
func ParseCAs(pem []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("it holds no PEM certificate")
	}
	return pool, nil
}
