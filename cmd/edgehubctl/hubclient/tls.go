package hubclient

import (
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
)

// TLSFiles are PEM files for a hub that offers its API over TLS; all empty: it is
// plain HTTP.
type TLSFiles struct{ CA, Cert, Key string }

// config returns nil for plain HTTP.
func (f TLSFiles) config() (*tls.Config, error) {
	if f == (TLSFiles{}) {
		return nil, nil
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, cli.WrongUse("--client-certificate goes with --client-key: give both or neither")
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, cli.WrongUse("--certificate-authority: %w", err)
		}
		config.RootCAs = x509.NewCertPool() // in place of the system's
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, cli.WrongUse("--certificate-authority: %s holds no PEM certificate", f.CA)
		}
	}
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, cli.WrongUse("--client-certificate, --client-key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
