package peer

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"testing"
)

// here returns Peers that count programs of the user who runs the tests as the node's.
func here(t testing.TB) *Peers {
	t.Helper()
	p, err := New([]uint32{uint32(os.Geteuid())})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// connect opens a connection and returns both ends.
func connect(t testing.TB, network, listen, dial string) (server, client net.Conn) {
	t.Helper()
	l, err := net.Listen(network, listen)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if client, err = net.Dial("tcp", net.JoinHostPort(dial, port)); err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return server, client
}

func (p *Peers) check(c net.Conn) error { return p.Check(c.(*net.TCPConn)) }

func TestOwnConnectionsAreTheNodes(t *testing.T) {
	tests := map[string]struct{ network, listen, dial string }{
		"IPv4":                     {"tcp4", "127.0.0.1:0", "127.0.0.1"},
		"another loopback address": {"tcp4", "127.0.0.11:0", "127.0.0.11"},
		"IPv6":                     {"tcp6", "[::1]:0", "::1"},
		"IPv4 to a port of both":   {"tcp", "[::]:0", "127.0.0.1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			server, client := connect(t, tt.network, tt.listen, tt.dial)
			if err := here(t).check(server); err != nil {
				t.Error(err)
			}
			if err := here(t).check(client); err != nil { // a socket of IPv6 that is connected to IPv4, once
				t.Errorf("the other way round: %v", err)
			}
		})
	}
}

func wantReason(t *testing.T, err error, reason Reason) {
	t.Helper()
	if r := refusalOf(t, err); r.Reason != reason {
		t.Fatalf("got %v (%+v), want %s", err, r, reason)
	}
}

// refusalOf fails the test if err is not a refusal.
func refusalOf(t *testing.T, err error) *Refusal {
	t.Helper()
	var r *Refusal
	if !errors.As(err, &r) {
		t.Fatalf("got %v, want a refusal", err)
	}
	return r
}

func TestOtherUsersAreRefused(t *testing.T) {
	p, err := New([]uint32{uint32(os.Geteuid()) + 1})
	if err != nil {
		t.Fatal(err)
	}
	server, _ := connect(t, "tcp4", "127.0.0.1:0", "127.0.0.1")
	r := refusalOf(t, p.check(server))
	if p.Identify(server.(*net.TCPConn), r); r.Reason != OtherUser || r.UID != uint32(os.Geteuid()) || r.PID != os.Getpid() || r.Comm == "" {
		t.Errorf("%+v, want this process", r)
	}
}

// For a connection that it does not know, the kernel reports the socket that listens at the address.
func TestAListenersAddressIsRefused(t *testing.T) {
	server, _ := connect(t, "tcp4", "127.0.0.1:0", "127.0.0.1")
	for _, listen := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::]:0"} {
		l, err := net.Listen("tcp", listen)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		elsewhere := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(addrPort(l.Addr()).Port())}
		wantReason(t, here(t).Check(redirected{server.(*net.TCPConn), elsewhere}), NotLocal)
	}
}

// redirected is a connection whose RemoteAddr is remote.
type redirected struct {
	*net.TCPConn
	remote net.Addr
}

func (r redirected) RemoteAddr() net.Addr { return r.remote }

func TestAConnectionThatItsProgramHasClosedIsRefused(t *testing.T) {
	server, client := connect(t, "tcp4", "127.0.0.1:0", "127.0.0.1")
	client.Close() // the socket waits for the server's end now
	wantReason(t, here(t).check(server), Unknown)
}

// BenchmarkCheck measures one check among some hundred processes.
func BenchmarkCheck(b *testing.B) {
	const others = 300
	for range others {
		cmd := exec.Command("sleep", "600")
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	}
	server, _ := connect(b, "tcp4", "127.0.0.1:0", "127.0.0.1")
	b.Run("known program", func(b *testing.B) {
		p := here(b)
		for b.Loop() {
			if err := p.check(server); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("unknown program", func(b *testing.B) {
		for b.Loop() {
			if err := here(b).check(server); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("state of the connection alone", func(b *testing.B) {
		p := here(b)
		for b.Loop() {
			if err := p.connected(server.(*net.TCPConn)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("other user", func(b *testing.B) {
		p := here(b)
		p.users = nil
		for b.Loop() {
			if p.check(server) == nil {
				b.Fatal("let in")
			}
		}
	})
}
