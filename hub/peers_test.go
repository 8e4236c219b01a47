package hub

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"testing"

	"github.com/edgehub-io/edgehub/hub/access"
	"github.com/edgehub-io/edgehub/hub/peer"
)

// On both proxy ports, over TLS also by HTTP/2.
func TestProxyPortsKnowTheirPeers(t *testing.T) {
	n := newNode(t, echoToken)
	h, err := n.hub()
	if err != nil {
		t.Fatal(err)
	}
	peers := make(chan string, 2)
	for _, p := range h.ports.all {
		next := p.server.Handler
		p.server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/version" {
				peers <- fmt.Sprintf("HTTP/%d %s", r.ProtoMajor, access.PeerOf(r.Context()))
			}
			next.ServeHTTP(w, r)
		})
	}
	n.run(t, h)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	me := fmt.Sprint("user ", os.Geteuid())
	if peers, err := peer.New(nil); err != nil || peers.SelfTest() != nil { // not supported on this machine
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
