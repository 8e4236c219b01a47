package kubeconfig

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"unicode"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/edgehub-io/edgehub/proxy/upstream"
)

// Identity is the node's identity, as read from a kubeconfig.
type Identity struct {
	Server *url.URL // of the kubeconfig's current context
	Creds  *upstream.Credentials
	CAPEM  []byte // the apiserver's CAs; empty: the system's
	// Digest is equal for equal contents of the kubeconfig and the files that it refers to.
	Digest [32]byte
}

// Load reads the kubeconfig at path and all files that it refers to.
func Load(path string) (*Identity, error) {
	id, err := load(path)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return id, nil
}

func load(path string) (*Identity, error) {
	config, err := LoadREST(path)
	if err != nil {
		return nil, err
	}
	server, err := ParseServer(config.Host)
	if err != nil {
		return nil, fmt.Errorf("server %w", err)
	}
	if err := checkSupported(config); err != nil {
		return nil, err
	}
	if err := readFiles(config); err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	id := &Identity{Server: server, CAPEM: config.CAData, Digest: digestOf(raw, config), Creds: &upstream.Credentials{
		ServerName: config.ServerName,
		Insecure:   config.Insecure,
		Proxy:      proxyOf(config.Proxy),
		Token:      strings.TrimSpace(config.BearerToken),
	}}
	if len(config.CAData) > 0 {
		if id.Creds.CAs, err = ParseCAs(config.CAData); err != nil {
			return nil, fmt.Errorf("certificate-authority: %w", err)
		}
	}
	if len(config.CertData) == 0 {
		return id, checkToken(id.Creds.Token)
	}
	certificate, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		return nil, fmt.Errorf("client certificate: %w", err)
	}
	id.Creds.Certificate = &certificate
	return id, nil
}

// readFiles reads the files that config refers to into config.
func readFiles(config *rest.Config) error {
	if config.BearerTokenFile != "" {
		data, err := os.ReadFile(config.BearerTokenFile)
		if err != nil {
			return err
		}
		if len(data) == 0 {
			return fmt.Errorf("token file %s is empty", config.BearerTokenFile)
		}
		config.BearerToken = string(data)
	}
	return rest.LoadTLSFiles(config)
}

// digestOf returns a digest of the kubeconfig, raw, and of the files that it refers to, whose
// contents are in config.
func digestOf(raw []byte, config *rest.Config) [32]byte {
	h := sha256.New()
	for _, part := range [][]byte{raw, []byte(config.BearerToken), config.CAData, config.CertData, config.KeyData} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write(part)
	}
	return [32]byte(h.Sum(nil))
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

// LoadREST reads the kubeconfig's current context, without the files that it refers to. Its errors
// contain no secrets. It does not use client-go's deferred loader, which would read the in-cluster
// configuration for an empty file, such as one that is being written.
func LoadREST(path string) (*rest.Config, error) {
	file, err := loadFile(path)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.NewDefaultClientConfig(*file, nil).ClientConfig()
	if err != nil {
		return nil, redactSecrets(err, file)
	}
	return config, nil
}

// ClusterOf returns the cluster of a kubeconfig's current context, with the contents of the
// files that it refers to.
func ClusterOf(file string) (*clientcmdapi.Cluster, error) {
	all, err := loadFile(file)
	if err != nil {
		return nil, err
	}
	if err := clientcmdapi.MinifyConfig(all); err != nil {
		return nil, err
	}
	if err := clientcmdapi.FlattenConfig(all); err != nil {
		return nil, err
	}
	for _, cluster := range all.Clusters {
		cluster.LocationOfOrigin, cluster.Extensions = "", nil
		return cluster, nil
	}
	return nil, errors.New("it names no cluster")
}

func loadFile(path string) (*clientcmdapi.Config, error) {
	file, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return nil, redactQuotes(err)
	}
	if err := clientcmd.ResolveLocalPaths(file); err != nil {
		return nil, redactSecrets(err, file)
	}
	return file, nil
}

// proxyOf returns choose, by default the environment's, which fails for a proxy that net/http cannot use.
func proxyOf(choose func(*http.Request) (*url.URL, error)) func(*http.Request) (*url.URL, error) {
	if choose == nil {
		choose = http.ProxyFromEnvironment
	}
	return func(r *http.Request) (*url.URL, error) {
		proxy, err := choose(r)
		if err != nil || proxy == nil {
			return proxy, err
		}
		switch proxy.Scheme {
		case "http", "https", "socks5", "socks5h":
			return proxy, nil
		}
		return nil, fmt.Errorf("proxy %s: only http://, https://, socks5:// and socks5h:// are supported", proxy.Redacted())
	}
}

// checkSupported rejects ways to authenticate that the hub would otherwise ignore.
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
