package registry

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
)

// connection is one that claims to lead to an address.
type connection struct {
	net.Conn
	to net.Addr
}

func (c connection) RemoteAddr() net.Addr { return c.to }

// TestRedirects lead a registry's clients to storage, and not to what trusts the node.
func TestRedirects(t *testing.T) {
	tests := map[string]struct {
		registry, target string // addresses
		allowed          bool
		down             bool // nobody takes the connection to the target
	}{
		"storage":                                  {"192.0.2.1", "198.51.100.1", true, false},
		"storage on the site":                      {"192.0.2.1", "10.0.0.1", true, false},
		"a cloud's metadata":                       {"192.0.2.1", "169.254.169.254", false, false},
		"a link's address":                         {"192.0.2.1", "fe80::1", false, false},
		"the node itself":                          {"192.0.2.1", "127.0.0.1", false, false},
		"the node itself, IPv6":                    {"192.0.2.1", "::1", false, false},
		"the node itself, from there":              {"127.0.0.1", "127.0.0.2", true, false},
		"storage that is down":                     {"192.0.2.1", "198.51.100.1", true, true},
		"the node itself, where nobody listens":    {"192.0.2.1", "127.0.0.1", false, true},
		"a cloud's metadata, from the node itself": {"127.0.0.1", "169.254.169.254", false, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			reached := false
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Host == "registry.example.com" {
					http.Redirect(w, r, "http://other.example.com/secrets", http.StatusTemporaryRedirect)
					return
				}
				reached = true
			}))
			defer server.Close()
			base := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				ip := tt.target
				if strings.HasPrefix(addr, "registry.example.com:") {
					ip = tt.registry
				} else if tt.down {
					return nil, &net.OpError{Op: "dial", Addr: &net.TCPAddr{IP: net.ParseIP(ip)}, Err: syscall.ECONNREFUSED}
				}
				conn, err := (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
				return connection{Conn: conn, to: &net.TCPAddr{IP: net.ParseIP(ip)}}, err
			}}
			defer base.CloseIdleConnections()
			w := NewTransports(NewLimiter(0), DefaultWindow, func(int) {}, nil)
			w.hosts.name("registry.example.com")
			client := &http.Client{Transport: base}
			if err := w.adopt(client); err != nil {
				t.Fatal(err)
			}
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://registry.example.com/v2/", nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := client.Do(request)
			if err == nil {
				_ = response.Body.Close()
			}
			if _, refused := errors.AsType[*localAddressError](err); reached != (tt.allowed && !tt.down) || refused == tt.allowed {
				t.Errorf("reached %v, %v", reached, err)
			}
		})
	}
}
