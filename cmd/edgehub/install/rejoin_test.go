package install

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edgehub-io/edgehub/cmd/edgehub/install/files"
)

// newCA returns a CA's certificate, in PEM.
func newCA(t *testing.T) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}))
}

// Kubelet joins a cluster with kubeadm's own arguments, and talks to a hub that was set up for its cluster.
func TestWhomKubeletTalksTo(t *testing.T) {
	folder := t.TempDir()
	envFile, file := filepath.Join(folder, "kubelet.env"), filepath.Join(folder, "kubelet.conf")
	write := func(cas string) {
		t.Helper()
		text := strings.Replace(ownKubeconfig, "{server:", "{certificate-authority-data: "+base64.StdEncoding.EncodeToString([]byte(cas))+", server:", 1)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	install := func() {
		t.Helper()
		content, err := kubeletEnv(file)
		if err == nil {
			err = files.Write(envFile, files.Entry{Kind: files.KindFile, Mode: 0o644, UID: os.Getuid(), GID: os.Getgid()}, content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	first, second, third, other := newCA(t), newCA(t), newCA(t), newCA(t)
	casOf := func(cas string) []string {
		write(cas)
		content, err := kubeletEnv(file)
		if err != nil {
			t.Fatal(err)
		}
		return casIn(content)
	}
	for _, step := range []struct {
		name string
		do   func()
		hub  []string // the CAs that it knows
		want bool
	}{
		{"after an install", func() { write(first); install() }, nil, true},
		{"with a second CA", func() { write(first + second) }, nil, true},
		{"with the second one alone", func() { write(second) }, nil, true},
		{"with a third one that came while kubelet ran, as the hub knows", func() { write(third) }, casOf(third), true},
		{"with no CA, which says nothing", func() { write("") }, nil, true},
		{"with the second one again", func() { write(second) }, nil, true},
		{"after kubeadm reset", func() { _ = os.Remove(file) }, nil, false},
		{"after kubeadm join, to the same cluster", func() { write(second) }, nil, false},
		{"after another install", install, nil, true},
		{"in another cluster, as after kubeadm init", func() { write(other) }, nil, false},
		{"in the first one again", func() { write(second) }, nil, false},
		{"after a third install", install, nil, true},
	} {
		step.do()
		got, err := ledToHub(envFile, file, step.hub)
		_, missing := os.Stat(envFile)
		if err != nil || got != step.want || errors.Is(missing, fs.ErrNotExist) == step.want {
			t.Errorf("%s: led to the hub %v, %v, want %v; the file: %v", step.name, got, err, step.want, missing)
		}
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ledToHub(envFile, file, nil); err == nil {
		t.Error("a kubeconfig that is none is no error")
	} else if _, err := os.Stat(envFile); err != nil {
		t.Errorf("a kubeconfig that is none has kubelet leave the hub: %v", err)
	}
}
