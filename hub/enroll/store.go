package enroll

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"

	"github.com/edgehub-io/edgehub/cache/durable"
)

// Store keeps the hub's certificate and the key of a pending request on disk. Except for Kubeconfig,
// its methods are not safe for concurrent use.
type Store struct{ kubeconfig, pending string } // files

// Open opens the store in a folder, which it creates if needed. It moves damaged files aside.
func Open(dir string, log *slog.Logger) (*Store, error) {
	s := &Store{kubeconfig: filepath.Join(dir, "hub.kubeconfig"), pending: filepath.Join(dir, "hub.key.pending")}
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		_, certErr := s.current()
		_, keyErr := s.pendingKey()
		err = errors.Join(setAside(s.kubeconfig, certErr, log), setAside(s.pending, keyErr, log))
	}
	if err != nil {
		return nil, fmt.Errorf("open folder of the hub's certificate: %w", err)
	}
	return s, nil
}

// setAside moves a file away if it was read and its contents are damaged. It returns any other error.
func setAside(file string, why error, log *slog.Logger) error {
	if _, unreadable := errors.AsType[*fs.PathError](why); unreadable || why == nil {
		return why
	}
	log.Error("file is damaged, and is moved aside; another certificate is asked for", "file", file, "err", why)
	return os.Rename(file, file+".damaged")
}

// Kubeconfig returns the path of the file with the certificate, which need not exist yet.
func (s *Store) Kubeconfig() string { return s.kubeconfig }

// certificate is the hub's certificate.
type certificate struct {
	leaf    *x509.Certificate
	written time.Time
	cluster *clientcmdapi.Cluster // that has issued it
}

// current returns the certificate in use, or nil if there is none.
func (s *Store) current() (*certificate, error) {
	info, err := os.Stat(s.kubeconfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.LoadFromFile(s.kubeconfig)
	if err != nil {
		return nil, err
	}
	user, cluster := config.AuthInfos[entry], config.Clusters[entry]
	if user == nil || cluster == nil {
		return nil, fmt.Errorf("it has no user or no cluster %q", entry)
	}
	pair, err := tls.X509KeyPair(user.ClientCertificateData, user.ClientKeyData)
	if err != nil {
		return nil, err
	}
	return &certificate{leaf: pair.Leaf, written: info.ModTime(), cluster: cluster}, nil
}

// entry is the name of everything in the kubeconfig.
const entry = "edgehub"

// commit stores a certificate and its key, and removes the pending key.
func (s *Store) commit(cluster *clientcmdapi.Cluster, certPEM []byte, key *ecdsa.PrivateKey) error {
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[entry] = cluster
	config.AuthInfos[entry] = &clientcmdapi.AuthInfo{ClientCertificateData: certPEM, ClientKeyData: keyPEM}
	config.Contexts[entry] = &clientcmdapi.Context{Cluster: entry, AuthInfo: entry}
	config.CurrentContext = entry
	data, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	if err := durable.Write(s.kubeconfig, data); err != nil {
		return err
	}
	return durable.Remove(s.pending)
}

// key returns the key for a request: that of a pending request, or else a new one.
func (s *Store) key() (*ecdsa.PrivateKey, error) {
	key, err := s.pendingKey()
	if key != nil || err != nil {
		return key, err
	}
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	data, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, err
	}
	return key, durable.Write(s.pending, data)
}

// forget removes the pending key, so that the next request has another.
func (s *Store) forget() error { return durable.Remove(s.pending) }

// pendingKey returns the key of a pending request, or nil if there is none.
func (s *Store) pendingKey() (*ecdsa.PrivateKey, error) {
	data, err := os.ReadFile(s.pending)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("it holds no PEM block")
	}
	return x509.ParseECPrivateKey(block.Bytes)
}
