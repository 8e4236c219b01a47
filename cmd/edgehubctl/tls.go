package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"
)

// tlsFiles are PEM files for a hub that offers its API over TLS; all empty: it is
// plain HTTP.
type tlsFiles struct{ ca, cert, key string }

// config returns nil for plain HTTP.
func (f tlsFiles) config() (*tls.Config, error) {
	if f == (tlsFiles{}) {
		return nil, nil
	}
	if (f.cert == "") != (f.key == "") {
		return nil, wrongUse("--client-certificate goes with --client-key: give both or neither")
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, wrongUse("--certificate-authority: %w", err)
		}
		config.RootCAs = x509.NewCertPool() // in place of the system's
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, wrongUse("--certificate-authority: %s holds no PEM certificate", f.ca)
		}
	}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, wrongUse("--client-certificate, --client-key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
