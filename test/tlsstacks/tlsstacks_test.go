// Package tlsstacks tries the hub's CA for pods with the TLS libraries of many languages. The table in docs/security.md
// says what it has found.
package tlsstacks

import (
	"crypto/tls"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// stack is a client with a TLS library of its own.
type stack struct {
	// command connects to HOST:PORT, and fails unless the certificate is for NAME, and of one of CAS. These words are replaced.
	command string
	compile string // in C: before the command, in its folder

	// What it does not do. docs/security.md says the same.
	noAddress  bool // take a certificate for an IP address
	accepts    bool // enforce the constraints of a CA that it trusts
	lost       int  // trust the newest CA by an old one, from this rotation on; 0: it does
	noRotation bool // trust the newest CA after two rotations
}

func stacks(t *testing.T) map[string]stack {
	t.Helper()
	data, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	return map[string]stack{
		"OpenSSL":  {command: "openssl s_client -connect HOST:PORT -CAfile CAS -verify_return_error -verify_KIND NAME -servername SNI"},
		"curl":     {command: "curl --silent --show-error --cacert CAS --connect-to ::HOST:PORT https://NAME/"},
		"GnuTLS":   {command: "gnutls-cli --x509cafile=CAS --port=PORT --verify-hostname=NAME --sni-hostname=SNI HOST", noRotation: true},
		"Mbed TLS": {command: "./mbedtls HOST PORT NAME CAS", compile: "gcc -o mbedtls " + data + "/mbedtls.c -lmbedtls -lmbedx509 -lmbedcrypto", noAddress: true, accepts: true},
		"wolfSSL":  {command: "./wolfssl HOST PORT NAME CAS", compile: "gcc -o wolfssl " + data + "/wolfssl.c -lwolfssl", noAddress: true, lost: 1},
		"Java":     {command: "java " + data + "/Client.java all HOST PORT NAME CAS", accepts: true},
		"Node":     {command: "node " + data + "/client.js HOST PORT NAME CAS"},
		"Python":   {command: "python3 " + data + "/client.py HOST PORT NAME CAS"},
		"Erlang":   {command: "escript " + data + "/client.escript HOST PORT NAME CAS", accepts: true, lost: 2},
		"Go":       {},
	}
}

func TestTheHubsCAWithEachTLSLibrary(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, s := range stacks(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if s.compile != "" {
				if out, err := run(t, dir, s.compile); err != nil {
					t.Fatalf("%s: %v\n%s", s.compile, err, out)
				}
			}
			for _, tt := range []struct {
				what    string
				server  *server
				cas     string
				name    string
				refused bool
			}{
				{"by name", w.first, w.first.cas, hubName, false},
				{"by address", w.first, w.first.cas, hubAddress, s.noAddress},
				{"by a name of its own", w.first, w.first.cas, ownName, false},
				{"a name that the certificate has not", w.second, w.second.cas, elsewhere, true},
				{"a name outside of the constraints", w.first, w.first.cas, elsewhere, !s.accepts},
				{"a pod that runs, after a rotation", w.second, w.first.cas, hubName, s.lost == 1},
				{"a pod that starts, after a rotation", w.second, w.second.cas, hubName, false},
				{"a pod that runs, after two", w.third, w.first.cas, hubName, s.lost != 0},
				{"a pod that starts, after two", w.third, w.third.cas, hubName, s.noRotation},
			} {
				out, err := s.connect(t, dir, tt.server.listener.Addr(), tt.name, tt.cas)
				if (err != nil) != tt.refused {
					t.Errorf("%s: refused: %t, and docs/security.md says %t: %v\n%s", tt.what, err != nil, tt.refused, err, out)
				}
			}
		})
	}
}

// Who reads the first certificate of ca.crt alone trusts the cluster's CA, and not the hub.
func TestWhoReadsTheFirstCertificateTrustsTheCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := stacks(t)["Java"]
	first.command = strings.Replace(first.command, " all ", " first ", 1)
	if out, err := first.connect(t, t.TempDir(), w.cluster.listener.Addr(), hubName, w.first.cas); err != nil {
		t.Errorf("the apiserver: %v\n%s", err, out)
	}
	if out, err := first.connect(t, t.TempDir(), w.first.listener.Addr(), hubName, w.first.cas); err == nil {
		t.Errorf("it trusts the hub\n%s", out)
	}
}

func (s stack) connect(t *testing.T, dir string, address net.Addr, name, cas string) (string, error) {
	t.Helper()
	if s.command == "" {
		return "", dialGo(t, address, name, cas)
	}
	host, port, err := net.SplitHostPort(address.String())
	if err != nil {
		t.Fatal(err)
	}
	kind, sni := "hostname", name
	if net.ParseIP(name) != nil {
		kind, sni = "ip", host
	}
	return run(t, dir, strings.NewReplacer("HOST", host, "PORT", port, "NAME", name, "SNI", sni, "KIND", kind, "CAS", cas).Replace(s.command))
}

func run(t *testing.T, dir, command string) (string, error) {
	t.Helper()
	words := strings.Fields(command)
	cmd := exec.CommandContext(t.Context(), words[0], words[1:]...) // stdin is empty
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func dialGo(t *testing.T, address net.Addr, name, cas string) error {
	t.Helper()
	pem, err := os.ReadFile(cas)
	if err != nil {
		t.Fatal(err)
	}
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: pool(t, pem), ServerName: name, MinVersion: tls.VersionTLS12}}
	conn, err := dialer.DialContext(t.Context(), "tcp", address.String())
	if err == nil {
		conn.Close()
	}
	return err
}
