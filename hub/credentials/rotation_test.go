package credentials

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/proxy/upstream"
)

// writeCertificate writes a certificate and its key to one file, as kubelet does.
func writeCertificate(t *testing.T, file string, end time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: end}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	keyDER, keyErr := x509.MarshalPKCS8PrivateKey(key)
	if err := errors.Join(err, keyErr); err != nil {
		t.Fatal(err)
	}
	both := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})...)
	if err := os.WriteFile(file, both, 0o600); err != nil {
		t.Fatal(err)
	}
}

// kubelet replaces the file of its certificate by a link to another one.
func TestARotatedCertificateIsTakenUp(t *testing.T) {
	dir := t.TempDir()
	c := &config.Config{Options: config.Options{Kubeconfig: filepath.Join(dir, "kubeconfig")}}
	text := strings.NewReplacer("SERVER", "a", `token: "abcdef.0123456789abcdef"`, "client-certificate: current.pem, client-key: current.pem").Replace(aCluster)
	if err := os.WriteFile(c.Kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	rotate := func(end time.Time) {
		t.Helper()
		file, current := filepath.Join(dir, fmt.Sprint(end.Unix(), ".pem")), filepath.Join(dir, "current.pem")
		writeCertificate(t, file, end)
		_ = os.Remove(current)
		if err := os.Symlink(file, current); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		log, registry := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
		rotate(time.Now().Add(time.Hour))
		source, err := Open(c, log)
		if err != nil {
			t.Fatal(err)
		}
		id, err := source.Load()
		if err != nil {
			t.Fatal(err)
		}
		cloud, err := upstream.New([]*url.URL{id.Server}, "n", upstream.Priority, id.Creds, upstream.Limits{}, log, upstream.NewMetrics(registry))
		if err != nil {
			t.Fatal(err)
		}
		defer cloud.Close()
		n, err := New(source, id, cloud, nil, registry, log)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- n.Run(ctx) }()
		end := time.Now().Add(2 * time.Hour)
		rotate(end)
		time.Sleep(11 * time.Second) //nolint:forbidigo // of synctest's clock
		synctest.Wait()
		if expires, _ := n.Expires(); !expires.Equal(end) {
			t.Errorf("11 s after the rotation the certificate expires at %v, want %v", expires, end)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
