package proxy

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/proxy/authn"
)

// conversation sends a request with a body on a connection of its own, and returns all
// that comes back, status lines first. The body is sent when 100 Continue has come.
func conversation(t *testing.T, conn net.Conn, header string) string {
	t.Helper()
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
	io.WriteString(conn, "POST /api/v1/pods HTTP/1.1\r\nHost: hub\r\nContent-Length: 5\r\nExpect: 100-continue\r\nConnection: close\r\n"+header+"\r\n")
	in := bufio.NewReader(conn)
	said := ""
	for {
		line, err := in.ReadString('\n')
		if said += line; err != nil {
			return said
		}
		if strings.HasPrefix(line, "HTTP/1.1 100 ") && strings.Count(said, " 100 ") == 1 {
			io.WriteString(conn, "hello")
		}
	}
}

// A client gets 100 Continue once, though both net/http and the apiserver say it, and
// everything else that the apiserver says before its answer.
func TestContinueIsSaidOnce(t *testing.T) {
	hub := newHub(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		w.WriteHeader(http.StatusContinue)
		body, _ := io.ReadAll(r.Body)
		w.Header()["Date"], w.Header()["Content-Type"] = nil, nil
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "got "+string(body))
	})
	secure := httptest.NewTLSServer(hub.proxy.Handler(authn.Loopback)) // HTTP/1.1, as curl --http1.1
	t.Cleanup(secure.Close)
	for name, dial := range map[string]func() (net.Conn, error){
		"the plain port": func() (net.Conn, error) { return net.Dial("tcp", hub.Listener.Addr().String()) },
		"the TLS port": func() (net.Conn, error) {
			return tls.Dial("tcp", secure.Listener.Addr().String(), secure.Client().Transport.(*http.Transport).TLSClientConfig)
		},
	} {
		for who, header := range map[string]string{"the node": "", "a pod": "Authorization: Bearer pod\r\n"} {
			t.Run(name+", "+who, func(t *testing.T) {
				conn, err := dial()
				if err != nil {
					t.Fatal(err)
				}
				said := conversation(t, conn, header)
				if n := strings.Count(said, "HTTP/1.1 100 "); n != 1 {
					t.Errorf("100 Continue came %d times:\n%s", n, said)
				}
				if !strings.Contains(said, "HTTP/1.1 103 ") || !strings.Contains(said, "Link: </style.css>") {
					t.Errorf("103 did not come:\n%s", said)
				}
				if !strings.Contains(said, "HTTP/1.1 201 ") || !strings.Contains(said, "got hello") {
					t.Errorf("the answer did not come:\n%s", said)
				}
				if strings.Contains(said, "Date:") || strings.Contains(said, "Content-Type:") {
					t.Errorf("the hub added to the answer:\n%s", said)
				}
			})
		}
	}
}
