package callers

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

const (
	// racePorts is how many ports a program may draw, and how many attempts are made
	// together.
	racePorts = 50
	attempts  = 1000
	plainPort = "127.0.0.1:10261"
)

// race is a hub in a network of its own, with so few ports that each is drawn again at
// once, and two callers there.
type race struct {
	*testing.T
	namespace
	hub            int // its process ID
	attacker, root *caller
	stolen         atomic.Int64 // requests of the attacker that got the node's identity
	metrics        http.Client
}

func newRace(t *testing.T) *race {
	t.Helper()
	r := &race{T: t, namespace: newNamespace(t)}
	r.sh(fmt.Sprintf(`ip link set lo up; echo "40000 %d" >/proc/sys/net/ipv4/ip_local_port_range`, 40000+racePorts-1))
	r.metrics.Transport = &http.Transport{DialContext: r.dial}
	t.Cleanup(r.metrics.CloseIdleConnections)
	server, ca := r.startServer()
	r.hub = r.startHub(hubFlagsFor(t, server, ca))
	r.inside(func() {
		r.attacker = newCaller(t, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}})
		r.root = newCaller(t, nil)
	})
	r.await(`edgehub_upstream_up`, 1)
	r.await(`edgehub_proxy_caller_check`, 1)
	return r
}

func (r *race) dial(_ context.Context, network, address string) (conn net.Conn, err error) {
	r.inside(func() { conn, err = net.Dial(network, address) })
	return conn, err
}

// startServer starts what the hub takes for an apiserver. It counts DELETEs of the node.
func (r *race) startServer() (url string, ca []byte) {
	r.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodDelete && req.Header.Get("Authorization") == "Bearer "+nodeToken {
			r.stolen.Add(1)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}")
	}))
	server.Listener.Close()
	var err error
	r.inside(func() { server.Listener, err = net.Listen("tcp", "127.0.0.1:6443") })
	if err != nil {
		r.Fatal(err)
	}
	server.StartTLS()
	r.Cleanup(server.Close)
	return server.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

// metric is the value of the metric whose name and labels begin like this, or -1 while
// there is none.
func (r *race) metric(name string) int {
	res, err := r.metrics.Get("http://127.0.0.1:10267/metrics")
	if err != nil {
		return -1
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, name) {
			n, err := strconv.Atoi(line[strings.LastIndex(line, " ")+1 : len(line)-1])
			if err != nil {
				r.Fatal(err)
			}
			return n
		}
	}
	return -1
}

func (r *race) await(metric string, value int) {
	r.Helper()
	if !poll.Within(patience, func() bool { return r.metric(metric) == value }) {
		r.Fatalf("%s is %d, want %d", metric, r.metric(metric), value)
	}
}

// attempt makes racePorts attempts: the attacker's requests are sent and their
// connections reset, and root's program draws the same ports.
func (r *race) attempt() (letGo func()) {
	r.Helper()
	const host = " HTTP/1.1\r\nHost: localhost\r\n\r\n"
	out := r.attacker.do(order{At: plainPort, Conns: racePorts, Reset: true, Send: "DELETE /api/v1/namespaces/default/pods/web" + host})
	if out.Err != "" {
		r.Fatal(out.Err)
	}
	attacked := map[int]bool{}
	for _, port := range out.Ports {
		attacked[port] = true
	}
	out = r.root.do(order{At: plainPort, Conns: racePorts, Send: "GET /version" + host})
	for _, port := range out.Ports {
		delete(attacked, port)
	}
	if len(attacked) > 0 || out.Err != "" {
		r.Fatalf("root's program did not get %d of the ports: %s", len(attacked), out.Err)
	}
	return func() {
		r.Helper()
		if out := r.root.do(order{Answer: true}); out.Codes[http.StatusOK] != racePorts {
			r.Errorf("root's own requests were answered %v %s, want %d times 200", out.Codes, out.Err, racePorts)
		}
	}
}

// stop returns when no thread of the hub runs any more.
func (r *race) stop() {
	r.Helper()
	if err := unix.Kill(r.hub, unix.SIGSTOP); err != nil {
		r.Fatal(err)
	}
	if err := unix.Waitid(unix.P_PID, r.hub, nil, unix.WSTOPPED, nil); err != nil {
		r.Fatal(err)
	}
}

func (r *race) goOn() {
	r.Helper()
	if err := unix.Kill(r.hub, unix.SIGCONT); err != nil {
		r.Fatal(err)
	}
}

// wantNoneStolen waits until the hub has done with all connections.
func (r *race) wantNoneStolen() {
	r.Helper()
	r.await(`edgehub_connections{port="proxy-port"}`, 0)
	r.Logf("%d of %d requests of user 65534 got the node's identity", r.stolen.Load(), attempts)
	if r.stolen.Load() > 0 {
		r.Error("requests pass for those of the program that draws their connection's port next")
	}
}

// A request stays readable when its connection has been reset before the hub accepts it,
// and whoever draws its port next would be found at the connection's two addresses.
func TestARequestIsNotItsPortsNextOwners(t *testing.T) {
	needRoot(t)
	t.Run("while the hub is stopped", func(t *testing.T) {
		r := newRace(t)
		for range attempts / racePorts {
			r.stop()
			letGo := r.attempt()
			r.goOn()
			letGo()
		}
		r.wantNoneStolen()
		// So many refusals of one peer delay the next ones, or end their connections.
		var refused, closed int
		if !poll.Within(patience, func() bool {
			refused, closed = r.metric(`edgehub_proxy_callers_refused_total{reason="unknown"}`), r.metric(`edgehub_connections_refused_total{port="proxy-port"}`)
			return refused+closed >= attempts
		}) || refused+closed != attempts {
			t.Errorf("%d requests were refused, and %d connections closed, want %d", refused, closed, attempts)
		}
	})
	t.Run("under a flood of connections", func(t *testing.T) {
		r := newRace(t)
		t.Run("attempts", func(t *testing.T) { // the flood ends with this
			r.inside(func() {
				newCaller(t, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}).do(order{Flood: true, At: plainPort})
			})
			for range attempts / racePorts {
				r.attempt()()
			}
		})
		r.wantNoneStolen()
	})
}
