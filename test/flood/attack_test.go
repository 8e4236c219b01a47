package flood

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"
)

// attackVariable, in the environment, makes the test's program an attacker: it holds an attack
// as JSON.
const attackVariable = "EDGEHUB_TEST_ATTACK"

// attack is what an attacker does until it is killed. It prints a line when it begins.
type attack struct {
	Kind   string
	At     string // HOST:PORT of a port with TLS
	Plain  string // HOST:PORT of one without, or empty; of the node's API for askAPI
	Tokens []string
	Path   string // for Tokens
}

// attacks are, by their kind, what an attacker does.
var attacks = map[string]func(attack){ //nolint:gochecknoglobals // read only
	"chains":      (attack).showChains,
	"idle":        (attack).holdConnections,
	"headers":     (attack).sendHalfHeaders,
	"descriptors": (attack).openDescriptors,
	"watches":     (attack).watch,
	"refused":     (attack).askForNothing,
	"api":         (attack).askAPI,
}

func attackMain() {
	var a attack
	if err := json.Unmarshal([]byte(os.Getenv(attackVariable)), &a); err != nil {
		panic(err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends, however it does
		os.Exit(0)
	}()
	fmt.Println(a.Kind)
	attacks[a.Kind](a)
	select {}
}

// each runs do again and again, in n goroutines, and not too fast where it fails at once.
func each(n int, do func() error) {
	for range n {
		go func() {
			for {
				if do() != nil {
					time.Sleep(10 * time.Millisecond)
				}
			}
		}()
	}
}

// chain is a client's certificate of 99 intermediate CAs with keys that are slow to verify:
// 246 KB or less.
func chain() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	if err != nil {
		panic(err)
	}
	out := tls.Certificate{PrivateKey: key}
	padding := strings.Repeat("x", 2000)
	for i := range 100 {
		template := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 1)),
			Subject:      pkix.Name{CommonName: "system:node:node1", Organization: []string{"system:nodes", padding}},
			Issuer:       pkix.Name{CommonName: "system:node:node1", Organization: []string{"system:nodes", padding}},
			NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
			IsCA: i > 0, BasicConstraintsValid: true,
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			panic(err)
		}
		out.Certificate = append(out.Certificate, der)
	}
	return out
}

func (a attack) dial(config *tls.Config) (*tls.Conn, error) {
	config.InsecureSkipVerify = true
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", a.At, config)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// showChains has each connection shown a chain, and a request after it.
func (a attack) showChains() {
	shown := chain()
	each(16, func() error {
		conn, err := a.dial(&tls.Config{GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shown, nil }})
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		_, err = io.WriteString(conn, "GET /version HTTP/1.1\r\nHost: hub\r\n\r\n")
		_, _ = io.Copy(io.Discard, io.LimitReader(conn, 1))
		return err
	})
}

// holdConnections keeps as many as it gets, each with a chain.
func (a attack) holdConnections() {
	shown := chain()
	each(3000, func() error {
		conn, err := a.dial(&tls.Config{GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shown, nil }})
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = io.Copy(io.Discard, conn) // until the hub closes it
		return err
	})
}

// sendHalfHeaders sends 64 KiB of headers that do not end: half of them by HTTP/2.
func (a attack) sendHalfHeaders() {
	each(1536, func() error {
		conn, err := a.dial(&tls.Config{})
		if err != nil {
			return err
		}
		defer conn.Close()
		line := "X-Flood: " + strings.Repeat("x", 1000) + "\r\n"
		_, err = io.WriteString(conn, "GET /version HTTP/1.1\r\nHost: hub\r\n"+strings.Repeat(line, 64))
		_, _ = io.Copy(io.Discard, conn)
		return err
	})
	each(1536, func() error {
		conn, err := a.dial(&tls.Config{NextProtos: []string{"h2"}})
		if err != nil {
			return err
		}
		defer conn.Close()
		block := strings.Repeat("\x10\x03x-a\x64"+strings.Repeat("x", 100), 60) // not indexed: x-a, 100 bytes
		frames := "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, "") + frame(1, 1, block)
		for range 9 {
			frames += frame(9, 1, block)
		}
		_, err = io.WriteString(conn, frames)
		_, _ = io.Copy(io.Discard, conn)
		return err
	})
}

// frame is one of HTTP/2 without flags: SETTINGS is 4, HEADERS 1, CONTINUATION 9.
func frame(kind, stream byte, payload string) string {
	return string([]byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, 0, 0, 0, 0, stream}) + payload
}

// openDescriptors opens a million of them, or as many as it may, and then new connections without
// end, each of which may have the hub look for its process.
func (a attack) openDescriptors() {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		panic(err)
	}
	limit.Cur = min(limit.Max, 1<<20)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		panic(err)
	}
	last := 0
	for {
		fd, err := syscall.Dup(0)
		if err != nil {
			break
		}
		last = fd
	}
	for fd := last - 256; fd <= last; fd++ { // room for connections
		_ = syscall.Close(fd)
	}
	fmt.Println("full")
	at := a.Plain
	if at == "" {
		at = a.At
	}
	each(8, func() error {
		conn, err := net.DialTimeout("tcp", at, 10*time.Second)
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
		_, err = io.WriteString(conn, "GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn)
		return err
	})
}

// client speaks HTTP/2 on a connection of its own.
func (a attack) client() *http.Client {
	protocols := &http.Protocols{}
	protocols.SetHTTP2(true)
	return &http.Client{Transport: &http.Transport{
		Protocols: protocols, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // an attacker's
	}}
}

// watch has 250 watches on each of 17 connections.
func (a attack) watch() {
	for i := range 17 {
		client, token := a.client(), a.Tokens[i%len(a.Tokens)]
		each(250, func() error {
			req, err := http.NewRequest(http.MethodGet, "https://"+a.At+a.Path+"?watch=true", http.NoBody)
			if err != nil {
				return err
			}
			req.Header.Set("Authorization", "Bearer "+token)
			res, err := client.Do(req)
			if err != nil {
				return err
			}
			defer res.Body.Close()
			_, _ = io.Copy(io.Discard, res.Body)
			if res.StatusCode != http.StatusOK {
				return fmt.Errorf("status %d", res.StatusCode)
			}
			return nil
		})
	}
}

// askForNothing sends requests with a token that no apiserver knows, half of them with Upgrade.
func (a attack) askForNothing() {
	for i := range 32 {
		protocols := &http.Protocols{}
		protocols.SetHTTP1(true)
		client := &http.Client{Transport: &http.Transport{
			Protocols: protocols, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // an attacker's
		}, Timeout: 10 * time.Second}
		n := 0
		each(1, func() error {
			req, err := http.NewRequest(http.MethodGet, "https://"+a.At+"/api/v1/namespaces/default/pods", http.NoBody)
			if err != nil {
				return err
			}
			n++
			req.Header.Set("Authorization", fmt.Sprintf("Bearer forged-%d-%d", i, n))
			if i%2 == 0 {
				req.Header.Set("Connection", "Upgrade")
				req.Header.Set("Upgrade", "flood")
			}
			res, err := client.Do(req)
			if err != nil {
				return err
			}
			_, _ = io.Copy(io.Discard, res.Body)
			return res.Body.Close()
		})
	}
}

// askAPI sends requests to the node's API, nearly all about pods that nobody has.
func (a attack) askAPI() {
	for i := range 32 {
		client, n := &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}, 0
		each(1, func() error {
			n++
			method, path := http.MethodPost, fmt.Sprintf("/openyurt.io/v1/namespaces/default/pods/none-%d-%d/%s", i, n, []string{"upgrade", "hold", "rollback", "imagepull"}[n%4])
			if n%100 == 0 {
				method, path = http.MethodGet, "/pods"
			}
			req, err := http.NewRequest(method, "http://"+a.Plain+path, http.NoBody)
			if err != nil {
				return err
			}
			res, err := client.Do(req)
			if err != nil {
				return err
			}
			_, _ = io.Copy(io.Discard, res.Body)
			return res.Body.Close()
		})
	}
}
