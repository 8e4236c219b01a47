package kubeconfig

import (
	"cmp"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"strings"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// hubDomain ends the names that NewHubName returns. No resolver finds an address for them (RFC 6761, 6.4).
const hubDomain = ".edgehub.invalid"

// hubLabel is how many characters rand.Text returns: 130 bits.
const hubLabel = 26

// NewHubName returns a tls-server-name for a kubeconfig that leads to a hub. It is a secret: whoever knows it
// has read the kubeconfig.
func NewHubName() string { return strings.ToLower(rand.Text()) + hubDomain }

// IsHubName reports whether a name has the form of those that NewHubName returns, or a longer one. Nobody can
// guess such a name, and unlike that of a host it leads nowhere.
func IsHubName(name string) bool {
	label, ok := strings.CutSuffix(name, hubDomain)
	return ok && len(label) >= hubLabel && !strings.Contains(label, ".")
}

// HubName returns the tls-server-name in a kubeconfig's current context, which is empty if it has none, and the
// client certificate, which is nil if that is missing or cannot be read.
func HubName(path string) (string, *x509.Certificate, error) {
	file, err := loadFile(path)
	if err != nil {
		return "", nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	current := cmp.Or(file.Contexts[file.CurrentContext], &clientcmdapi.Context{})
	cluster := cmp.Or(file.Clusters[current.Cluster], &clientcmdapi.Cluster{})
	user := cmp.Or(file.AuthInfos[current.AuthInfo], &clientcmdapi.AuthInfo{})
	text := user.ClientCertificateData
	if len(text) == 0 && user.ClientCertificate != "" {
		text, _ = os.ReadFile(user.ClientCertificate)
	}
	return cluster.TLSServerName, firstCertificate(text), nil
}

func firstCertificate(text []byte) *x509.Certificate {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			cert, _ := x509.ParseCertificate(block.Bytes)
			return cert
		}
	}
	return nil
}
