package peer

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// socket is what the kernel reports about a TCP socket.
type socket struct {
	found bool // in this network namespace
	state tcpState
	uid   uint32 // meaningless if inode is 0
	inode uint32 // 0: no program holds it yet, or any longer
}

// The layouts of linux/netlink.h, linux/sock_diag.h and linux/inet_diag.h. Numbers are in
// the machine's byte order, ports and addresses in the network's.
const (
	netlinkHeader = 16
	typeError     = 2  // NLMSG_ERROR
	typeDiag      = 20 // SOCK_DIAG_BY_FAMILY
	flagRequest   = 1  // NLM_F_REQUEST

	familyIPv4, familyIPv6 = 2, 10 // AF_INET, AF_INET6
	protocolTCP            = 6

	requestLength = netlinkHeader + 8 + socketID // inet_diag_req_v2
	socketID      = 48                           // inet_diag_sockid
	replyLength   = netlinkHeader + 4 + socketID + 5*4

	enoent = 2
)

// tcpState is a state of net/tcp_states.h.
type tcpState uint8

const (
	stateEstablished tcpState = 1
	stateFinWait1    tcpState = 4
	stateFinWait2    tcpState = 5
	stateCloseWait   tcpState = 8
	stateListen      tcpState = 10
)

// isConnected reports whether the socket has completed its handshake, and its other end, if
// that still exists, has not closed the connection. A socket that is still connecting has no
// other end yet: the socket with its two addresses reversed may be connected to another one.
func (s socket) isConnected() bool {
	return s.state == stateEstablished || s.state == stateFinWait1 || s.state == stateFinWait2
}

// diagRequest returns a request for the socket that is bound to own and connected to other.
func diagRequest(own, other netip.AddrPort, sequence uint32) []byte {
	b := make([]byte, requestLength)
	order := binary.NativeEndian
	order.PutUint32(b[0:], requestLength)
	order.PutUint16(b[4:], typeDiag)
	order.PutUint16(b[6:], flagRequest)
	order.PutUint32(b[8:], sequence)
	b[16], b[17] = family(own), protocolTCP
	order.PutUint32(b[20:], ^uint32(0)) // in any state
	id := b[24:]
	binary.BigEndian.PutUint16(id[0:], own.Port())
	binary.BigEndian.PutUint16(id[2:], other.Port())
	copy(id[4:20], own.Addr().AsSlice())
	copy(id[20:36], other.Addr().AsSlice())
	order.PutUint32(id[40:], ^uint32(0)) // with any cookie
	order.PutUint32(id[44:], ^uint32(0))
	return b
}

func family(a netip.AddrPort) byte {
	if a.Addr().Is4() {
		return familyIPv4
	}
	return familyIPv6
}

// parseDiag reads the kernel's reply to diagRequest.
//
// The kernel looks for the socket that would receive a packet of this connection. If no
// socket has the connection, for example since it came here through a route, it returns a
// socket that listens at the port. So the reply counts only if it has both addresses and
// is not about a listener.
func parseDiag(b []byte, own, other netip.AddrPort, sequence uint32) (socket, error) {
	order := binary.NativeEndian
	if len(b) < netlinkHeader+4 {
		return socket{}, fmt.Errorf("the kernel's reply has %d bytes", len(b))
	}
	if got := order.Uint32(b[8:]); got != sequence {
		return socket{}, fmt.Errorf("the kernel's reply is for request %d, not %d", got, sequence)
	}
	switch kind := order.Uint16(b[4:]); {
	case kind == typeError:
		if errno := -int32(order.Uint32(b[16:])); errno != enoent {
			return socket{}, &diagError{errno}
		}
		return socket{}, nil
	case kind != typeDiag:
		return socket{}, fmt.Errorf("the kernel's reply is of type %d", kind)
	case len(b) < replyLength:
		return socket{}, fmt.Errorf("the kernel's reply has %d bytes", len(b))
	}
	message := b[netlinkHeader:]
	id := message[4:]
	local := address(message[0], id[4:20], binary.BigEndian.Uint16(id[0:]))
	remote := address(message[0], id[20:36], binary.BigEndian.Uint16(id[2:]))
	state := tcpState(message[1])
	if local != own || remote != other || state == stateListen {
		return socket{}, nil
	}
	return socket{found: true, state: state, uid: order.Uint32(b[replyLength-8:]), inode: order.Uint32(b[replyLength-4:])}, nil
}

// address returns the zero AddrPort for an unknown family. An IPv6 socket may have IPv4
// addresses.
func address(family byte, b []byte, port uint16) netip.AddrPort {
	switch family {
	case familyIPv4:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b)), port)
	case familyIPv6:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b)).Unmap(), port)
	}
	return netip.AddrPort{}
}

// diagError is the error number with which the kernel refuses a request.
type diagError struct{ errno int32 }

func (e *diagError) Error() string {
	return fmt.Sprintf("the kernel does not look the socket up: error %d", e.errno)
}
