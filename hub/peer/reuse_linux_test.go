package peer

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// dialFrom connects from an address that may have been used before, or may be in use by a socket that
// is bound to another device. If device is not empty, it binds the socket to it.
func dialFrom(t *testing.T, local, remote net.Addr, device string) *net.TCPConn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: local, Control: func(_, _ string, raw syscall.RawConn) (err error) {
		if controlErr := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
			if device != "" {
				err = errors.Join(err, unix.BindToDevice(int(fd), device))
			}
		}); controlErr != nil {
			return controlErr
		}
		return err
	}}
	c, err := dialer.DialContext(context.Background(), "tcp", remote.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

func accept(t *testing.T, l net.Listener) *net.TCPConn {
	t.Helper()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// A request can be read from a connection that was reset before it was accepted, when another program
// already has its port.
func TestAResetConnectionIsNotItsPortsNextOwner(t *testing.T) {
	for name, network := range map[string]struct{ listen, address string }{
		"IPv4":                   {"127.0.0.1:0", "127.0.0.1"},
		"IPv6":                   {"[::1]:0", "::1"},
		"IPv4 to a port of both": {"[::]:0", "127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", network.listen)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			to := &net.TCPAddr{IP: net.ParseIP(network.address), Port: l.Addr().(*net.TCPAddr).Port}
			attacker := dialFrom(t, &net.TCPAddr{IP: to.IP}, to, "")
			const request = "DELETE / HTTP/1.1\r\n"
			if _, err := attacker.Write([]byte(request)); err != nil {
				t.Fatal(err)
			}
			if err := attacker.SetLinger(0); err != nil { // Close resets
				t.Fatal(err)
			}
			attacker.Close()
			node := dialFrom(t, attacker.LocalAddr(), to, "")
			first, second := accept(t, l), accept(t, l)
			if first.RemoteAddr().String() != node.LocalAddr().String() {
				t.Fatalf("the connections are from %s and %s", first.RemoteAddr(), node.LocalAddr())
			}
			if n, err := first.Read(make([]byte, 100)); n != len(request) {
				t.Fatalf("the request is lost: %d bytes, %v", n, err)
			}
			p := here(t)
			wantReason(t, p.check(first), Unknown)
			if err := p.check(second); err != nil {
				t.Errorf("the port's next owner: %v", err)
			}
			if owner, ok := p.Owner(first); ok {
				t.Errorf("its owner is user %d", owner)
			}
			stranger := here(t)
			stranger.users = nil
			r := refusalOf(t, stranger.check(second))
			if stranger.Identify(first, r); r.PID != 0 {
				t.Errorf("the port's next owner is named for what another has sent: %+v", r)
			}
		})
	}
}

// A program can get a port that another one still has: a socket that is bound to a device, which any
// user may do since Linux 5.7, does not keep its addresses from sockets that are bound to none.
func TestAConnectionIsNotItsPortsOtherOwners(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	attacker := dialFrom(t, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, l.Addr(), "lo")
	first := accept(t, l)
	node := dialFrom(t, attacker.LocalAddr(), l.Addr(), "")
	second := accept(t, l)
	if first.RemoteAddr().String() != node.LocalAddr().String() {
		t.Fatalf("the connections are from %s and %s", first.RemoteAddr(), node.LocalAddr())
	}
	p := here(t)
	wantReason(t, p.check(first), Unknown)
	if err := p.check(second); err != nil {
		t.Errorf("the other owner: %v", err)
	}
}

// Some clients end their sending after the request, and wait for the answer.
func TestAHalfClosedConnectionIsAccepted(t *testing.T) {
	server, client := connect(t, "tcp4", "127.0.0.1:0", "127.0.0.1")
	if err := client.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Read(make([]byte, 1)); err == nil {
		t.Fatal("there is more to read")
	}
	if err := here(t).check(server); err != nil {
		t.Error(err)
	}
}

// A socket has no other end until its handshake is complete: its addresses may be those of a connection
// whose client is gone, but whose reset has not arrived.
func TestAConnectingSocketIsNotAPeer(t *testing.T) {
	root := fakeProc(t.TempDir())
	root.process(t, 10, onHost, 100)
	p := among(t, root)
	const synSent, synReceived, timeWait, closed, lastAck, closing, newSynReceived = 2, 3, 6, 7, 9, 11, 12
	for _, state := range []tcpState{0, synSent, synReceived, timeWait, closed, lastAck, stateListen, closing, newSynReceived} {
		p.find = func(_, _ netip.AddrPort) (socket, error) { return socket{found: true, state: state, inode: 100}, nil }
		wantReason(t, p.checkInode(100), Unknown)
	}
}
