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

	"github.com/edgehub-io/edgehub/hub/durable"
)

// Store is what survives a crash. Its methods are for one goroutine, Kubeconfig excepted.
type Store struct {
	kubeconfig string // file
	pending    string // file
}

// Open opens the store in a folder, which is made if it is not there. What is damaged is
// moved aside.
func Open(dir string, log *slog.Logger) (*Store, error) {
	s, err := open(dir, log)
	if err != nil {
		return nil, fmt.Errorf("open folder of the hub's certificate: %w", err)
	}
	return s, nil
}

// Kubeconfig is the file with the certificate, which need not be there yet.
func (s *Store) Kubeconfig() string { return s.kubeconfig }

func open(dir string, log *slog.Logger) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s := &Store{kubeconfig: filepath.Join(dir, "hub.kubeconfig"), pending: filepath.Join(dir, "hub.key.pending")}
	if _, err := s.current(); err != nil {
		if err := setAside(s.kubeconfig, err, log); err != nil {
			return nil, err
		}
	}
	if _, err := s.pendingKey(); err != nil {
		if err := setAside(s.pending, err, log); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// setAside moves a file away whose contents are at fault, and reports whatever else is
// wrong.
func setAside(file string, why error, log *slog.Logger) error {
	var path *fs.PathError
	if errors.As(why, &path) {
		return why
	}
	log.Error("file is damaged, and is moved aside; another certificate is asked for", "file", file, "err", why)
	return os.Rename(file, file+".damaged")
}

// certificate is one that the hub has.
type certificate struct {
	leaf    *x509.Certificate
	written time.Time
	cluster *clientcmdapi.Cluster // which it is for
}

// current returns the certificate in use; nil if there is none.
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

// commit takes a certificate into use, and forgets that it was asked for.
func (s *Store) commit(cluster *clientcmdapi.Cluster, certPEM []byte, key *ecdsa.PrivateKey) error {
	keyPEM, err := encodeKey(key)
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
	data, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return key, durable.Write(s.pending, data)
}

// forget gives up the certificate that was asked for.
func (s *Store) forget() error { return durable.Remove(s.pending) }

// pendingKey returns nil if nothing has been asked for.
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

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}
