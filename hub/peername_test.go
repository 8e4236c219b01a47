package hub

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"testing"
)

// connFrom is a connection whose RemoteAddr is remote.
type connFrom struct {
	*net.TCPConn
	remote net.Addr
}

func (c connFrom) RemoteAddr() net.Addr { return c.remote }

// What names a peer is nothing that it may choose freely.
func TestPeersAreNamedByUserOrAddress(t *testing.T) {
	c := lookingCallers(t)
	me := fmt.Sprint("user ", os.Geteuid())
	for range 2 {
		server, client := connectedPair(t)
		r := requestOn(t, c, server)
		if got := peerOf(r.Context()); got != me {
			t.Errorf("a program of this node is %q, want %q", got, me)
		}
		client.Close()
		if got := peerOf(r.Context()); got != me {
			t.Errorf("afterwards it is %q", got)
		}
	}
	for remote, want := range map[string]string{
		"10.244.0.7:1": "10.244.0.7", "10.244.0.7:2": "10.244.0.7", "[::ffff:10.244.0.7]:3": "10.244.0.7",
		"[fd00::7]:4": "fd00::7", "[fe80::7%eth0]:5": "fe80::7",
		"127.0.0.1:6": "loopback", "127.1.2.3:7": "loopback", "[::1]:8": "loopback",
	} {
		from := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(remote))
		conn := &knownConn{Conn: connFrom{&net.TCPConn{}, from}, peers: c.peers}
		if got := peerOf(context.WithValue(t.Context(), connKey{}, conn)); got != want {
			t.Errorf("%s is %q, want %q", remote, got, want)
		}
	}
	if got := peerOf(t.Context()); got != "" {
		t.Errorf("without a connection it is %q", got)
	}
}

// On both proxy ports, over TLS also by HTTP/2.
func TestProxyPortsKnowTheirPeers(t *testing.T) {
	n := newNode(t, echoToken)
	h, err := n.hub()
	if err != nil {
		t.Fatal(err)
	}
	peers := make(chan string, 2)
	for _, p := range h.ports {
		next := p.server.Handler
		p.server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/version" {
				peers <- fmt.Sprintf("HTTP/%d %s", r.ProtoMajor, peerOf(r.Context()))
			}
			next.ServeHTTP(w, r)
		})
	}
	n.run(t, h)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	me := fmt.Sprint("user ", os.Geteuid())
	if h.callers.peers == nil { // not supported on this machine
		me = "loopback"
	}
	for url, want := range map[string]string{
		"http://" + n.config.ProxyAddress: "HTTP/1 " + me, "https://" + n.config.SecureAddress: "HTTP/2 " + me,
	} {
		fetch(t, client, url+"/version")
		if got := <-peers; got != want {
			t.Errorf("%s: the peer is %q, want %q", url, got, want)
		}
	}
}
