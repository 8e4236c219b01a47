package upstream_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/edgehub-io/edgehub/proxy/upstream"
)

// relay passes bytes both ways until either side ends.
func relay(a, b net.Conn) {
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
		both.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			pair[0].Close()
		})
	}
	both.Wait()
}

// tunnels is an HTTP proxy that connects to any server, and counts the tunnels.
func tunnels(t *testing.T, count *atomic.Int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
			t.Error("the proxy gets a client certificate")
		}
		server, err := net.Dial("tcp", r.Host)
		if err != nil || r.Method != http.MethodConnect {
			t.Errorf("%s %s: %v", r.Method, r.Host, err)
			return
		}
		w.WriteHeader(http.StatusOK)
		client, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		count.Add(1)
		// The server may have read the beginning of what follows the answer.
		early, _ := buffered.Peek(buffered.Reader.Buffered())
		_, _ = server.Write(early)
		relay(client, server)
	})
}

// socks is a SOCKS5 proxy without authentication (RFC 1928), which connects to IPv4 addresses and names.
func socks(t *testing.T, count *atomic.Int64) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() { listener.Close(); all.Wait() })
	serve := func(client net.Conn) {
		defer client.Close()
		b := make([]byte, 256)
		read := func(n int) []byte { _, _ = io.ReadFull(client, b[:n]); return b[:n] }
		read(int(read(2)[1])) // the methods
		_, _ = client.Write([]byte{5, 0})
		var host string
		if read(4)[3] == 1 {
			host = net.IP(read(4)).String()
		} else {
			host = string(read(int(read(1)[0])))
		}
		server, err := net.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(int(binary.BigEndian.Uint16(read(2))))))
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = client.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
		count.Add(1)
		relay(client, server)
	}
	all.Go(func() {
		for client, err := listener.Accept(); err == nil; client, err = listener.Accept() {
			all.Go(func() { serve(client) })
		}
	})
	return listener.Addr().String()
}

// An apiserver is reached through each kind of proxy that net/http knows. No proxy gets the node's certificate, and
// one at https:// has to prove its name.
func TestProxiesOnTheWay(t *testing.T) {
	var count atomic.Int64
	handler := tunnels(t, &count)
	plain := httptest.NewServer(handler)
	defer plain.Close()
	secured := func(c *tls.Config) *httptest.Server {
		s := httptest.NewUnstartedServer(handler)
		s.TLS = c
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	secure := secured(&tls.Config{ClientAuth: tls.RequestClientCert})
	stranger := secured(&tls.Config{Certificates: []tls.Certificate{*selfSigned(t, "proxy", x509.Certificate{IPAddresses: []net.IP{{127, 0, 0, 1}}})}})
	anotherName := strings.Replace(secure.URL, "127.0.0.1", "localhost", 1) // its certificate is that of 127.0.0.1
	socksAddress := socks(t, &count)
	for name, tt := range map[string]struct {
		proxy string
		err   string
	}{
		"http":                              {proxy: plain.URL},
		"https":                             {proxy: secure.URL},
		"socks5":                            {proxy: "socks5://" + socksAddress},
		"socks5h":                           {proxy: "socks5h://" + socksAddress},
		"https, signed by somebody":         {proxy: stranger.URL, err: "certificate signed by unknown authority"},
		"https, with another name":          {proxy: anotherName, err: "not localhost"},
		"https, where plain HTTP is spoken": {proxy: strings.Replace(plain.URL, "http", "https", 1), err: "TLS handshake with the proxy"},
	} {
		t.Run(name, func(t *testing.T) {
			address, err := url.Parse(tt.proxy)
			if err != nil {
				t.Fatal(err)
			}
			before := count.Load()
			var certificates atomic.Int64
			api := apiServer(t, func(w http.ResponseWriter, r *http.Request) {
				certificates.Add(int64(len(r.TLS.PeerCertificates)))
				ok(w, r)
			})
			hub := newHub(t, upstream.Credentials{Proxy: http.ProxyURL(address), Certificate: selfSigned(t, "node", x509.Certificate{})}, api)
			text := get(t, hub, pods, nil)
			if tt.err != "" {
				if err := hub.upstream.State().Servers[0].Err; err == nil || !strings.Contains(err.Error(), tt.err) || count.Load() > before {
					t.Errorf("it is down because %v, with %d tunnels: %s", err, count.Load()-before, text)
				}
				return
			}
			if count.Load() == before || certificates.Load() == 0 {
				t.Errorf("%d tunnels, %d certificates at the apiserver: %s", count.Load()-before, certificates.Load(), text)
			}
		})
	}
}
