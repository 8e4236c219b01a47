package servertls

import (
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"math/big"
	"sync"

	"github.com/edgehub-io/edgehub/hub/kubeconfig"
)

// named has certificates for the server name in kubelet's kubeconfig (see kubeconfig.NewHubName), which is a
// secret. So the name stands in no certificate that others get: whoever asks with such a name gets one for
// that, signed by the hub's self-signed certificate, which kubelet pins. It is made for any of these names, and
// so for one that a running kubelet has after its kubeconfig was replaced.
type named struct {
	own *cachedFile[*tls.Certificate]
	log *slog.Logger

	mu     sync.Mutex
	last   *tls.Certificate
	signer *tls.Certificate // of last
}

// get returns nil for a name that is none of kubelet's.
func (n *named) get(name string) *tls.Certificate {
	if !kubeconfig.IsHubName(name) {
		return nil
	}
	own := n.own.get()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.last != nil && n.signer.Leaf.Equal(own.Leaf) && n.last.Leaf.DNSNames[0] == name {
		return n.last
	}
	signed, err := signFor(name, own)
	if err != nil {
		n.log.Error("no certificate can be made for kubelet, which refuses the usual one", "err", err)
		return nil
	}
	n.last, n.signer = signed, own
	return signed
}

// signFor returns a certificate for a name, with the key of its signer.
func signFor(name string, signer *tls.Certificate) (*tls.Certificate, error) {
	key, ok := signer.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, errors.New("the key of the hub's own certificate cannot sign")
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "edgehub for kubelet", Organization: []string{"edgehub"}},
		DNSNames:     []string{name},
		NotBefore:    noBeginning,
		NotAfter:     noExpiration,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.Leaf, key.Public(), key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
}
