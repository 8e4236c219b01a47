package install

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/nodeca"
)

// RotateCA replaces the CA that the node's pods verify the hub with, and waits until the hub uses
// it. Pods do not notice.
func RotateCA(ctx context.Context, wait time.Duration, out io.Writer) error {
	if err := checkPrerequisites(); err != nil {
		return err
	}
	j, err := openJournal() // no install or uninstall may run meanwhile
	if err != nil {
		return err
	}
	defer j.close()
	switch {
	case j.Change != nil:
		return errors.New("an install or uninstall was broken off: run it again first")
	case j.Installed == nil:
		return errors.New("edgehub is not installed on this node")
	case len(j.Installed.PodServers) == 0:
		return errors.New("pods of this node do not use the hub (--kubelet-only), so there is no CA to rotate")
	}
	ca, err := nodeca.Load(filepath.Join(j.Installed.RootDir, "pki", config.PodCAName))
	if err == nil {
		err = ca.Rotate()
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "the CA was replaced; waiting until the hub serves pods with it")
	if err := waitFor(ctx, wait, "the hub does not use the new CA yet, and will when it runs", func(ctx context.Context) error {
		return isServedBy(ctx, ca, j.Installed.PodServers[0])
	}); err != nil {
		return err
	}
	fmt.Fprintln(out, "done: pods that run go on trusting the hub; those that start once kubelet was restarted trust the new CA alone")
	return nil
}

// isServedBy returns nil if what serves pods has a certificate of ca.
func isServedBy(ctx context.Context, ca *nodeca.CA, address string) error {
	roots, err := rootsOf(ca)
	if err != nil {
		return err
	}
	const timeout = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	dialer := tls.Dialer{Config: podTLS(roots)}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// podServerName is a name of the apiserver that pods use, and that the hub's certificate for them has.
const podServerName = "kubernetes.default.svc"

// podTLS is how a pod verifies the hub.
func podTLS(roots *x509.CertPool) *tls.Config {
	return &tls.Config{RootCAs: roots, ServerName: podServerName, MinVersion: tls.VersionTLS12}
}

// podRoots reads the CA that pods verify the hub with.
func podRoots(file string) (*x509.CertPool, error) {
	ca, err := nodeca.Load(file)
	if err != nil {
		return nil, err
	}
	return rootsOf(ca)
}

func rootsOf(ca *nodeca.CA) (*x509.CertPool, error) {
	pem, err := ca.Certificate()
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return roots, nil
}
