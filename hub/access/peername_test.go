package access

import (
	"fmt"
	"net"
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

// A peer cannot choose its name freely.
func TestPeersAreNamedByUserOrAddress(t *testing.T) {
	c := lookingCallers(t)
	me := fmt.Sprint("user ", os.Geteuid())
	for range 2 {
		server, client := connectedPair(t)
		r := requestOn(t, c, server)
		if got := PeerOf(r.Context()); got != me {
			t.Errorf("a program of this node is %q, want %q", got, me)
		}
		client.Close()
		if got := PeerOf(r.Context()); got != me {
			t.Errorf("afterwards it is %q", got)
		}
	}
	for remote, want := range map[string]string{
		"10.244.0.7:1": "10.244.0.7", "10.244.0.7:2": "10.244.0.7", "[::ffff:10.244.0.7]:3": "10.244.0.7",
		"[fd00::7]:4": "fd00::7", "[fe80::7%eth0]:5": "fe80::7",
		"127.0.0.1:6": "loopback", "127.1.2.3:7": "loopback", "[::1]:8": "loopback",
	} {
		from := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(remote))
		if got := PeerOf(c.ConnContext(t.Context(), connFrom{&net.TCPConn{}, from})); got != want {
			t.Errorf("%s is %q, want %q", remote, got, want)
		}
	}
	if got := PeerOf(t.Context()); got != "" {
		t.Errorf("without a connection it is %q", got)
	}
}
