package install

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// squatter takes the hub's ports as soon as they are free, as any user of the node can, and keeps
// them. Whoever speaks to it, over TLS or not, is told that it has an error.
type squatter struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu    sync.Mutex
	taken []string // ports
	heard []string // requests of kubelets
}

func (n *node) squat() *squatter {
	n.t.Helper()
	certFile, keyFile, err := n.cluster.ClientCert("squatter") // no client trusts it
	if err != nil {
		n.t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(n.t.Context())
	s := &squatter{stop: stop}
	s.done.Go(func() {
		err := n.InNetwork(func() { s.take(ctx, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}) })
		if err != nil {
			n.t.Error(err)
		}
	})
	return s
}

// take tries every port each millisecond.
func (s *squatter) take(ctx context.Context, config *tls.Config) {
	left := []string{"127.0.0.1:10261", "127.0.0.1:10267", "127.0.0.1:10268"}
	for ctx.Err() == nil {
		for i, address := range left {
			l, err := net.Listen("tcp", address)
			if err != nil {
				continue
			}
			context.AfterFunc(ctx, func() { l.Close() })
			s.mu.Lock()
			s.taken = append(s.taken, address)
			s.mu.Unlock()
			s.done.Go(func() { s.serve(ctx, l, config) })
			left = append(left[:i:i], left[i+1:]...)
			break
		}
		time.Sleep(time.Millisecond)
	}
}

func (s *squatter) serve(ctx context.Context, l net.Listener, config *tls.Config) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		s.done.Go(func() {
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			s.converse(conn, config)
		})
	}
}

func (s *squatter) converse(conn net.Conn, config *tls.Config) {
	r := bufio.NewReader(conn)
	const tlsHandshake = 22 // RFC 8446, 5.1
	if first, err := r.Peek(1); err == nil && first[0] == tlsHandshake {
		conn = tls.Server(&peekedConn{conn, r}, config)
		r = bufio.NewReader(conn)
	}
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if strings.HasPrefix(req.UserAgent(), "kubelet/") {
			s.mu.Lock()
			s.heard = append(s.heard, req.Host+": "+req.Method+" "+req.URL.Path)
			s.mu.Unlock()
		}
		_, _ = io.Copy(io.Discard, req.Body)
		fmt.Fprint(conn, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
	}
}

type peekedConn struct {
	net.Conn
	r io.Reader
}

func (c *peekedConn) Read(p []byte) (int, error) { return c.r.Read(p) }

// release gives all ports back. It returns those that it had, and what kubelets have said there.
func (s *squatter) release() (taken, heard []string) {
	s.stop()
	s.done.Wait()
	return s.taken, s.heard
}

// losesItsPorts runs an upgrade that has other sockets, while a squatter takes every port that it
// lets go of. Kubelet is led to the apiserver then, and never to the squatter, and comes back behind the
// hub when the ports are free.
func (n *node) losesItsPorts(hub, pod string, args ...string) {
	n.t.Helper()
	args = append([]string{"install"}, args...)
	s := n.squat()
	out, err := n.edgehub(hub, args...)
	if err == nil {
		n.t.Error("it has the ports that a squatter has")
	}
	n.contains(out, "kubelet talks to the apiserver itself")
	n.awaitReady()
	n.contains(n.kubeletCommand(), "--kubeconfig=/etc/kubernetes/kubelet.conf")
	n.lives(pod)
	if out, err := n.edgehub(hub, args...); err == nil {
		n.t.Error("it has the ports that a squatter has")
	} else {
		n.contains(out, "is not free")
	}
	taken, heard := s.release()
	if len(taken) == 0 || len(heard) > 0 {
		n.t.Errorf("a squatter had the ports %v, and kubelet has sent it %q", taken, heard)
	}
	n.must(hub, args...)
	n.behindHub()
	n.lives(pod)
}
