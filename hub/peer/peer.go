package peer

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
)

// Peers distinguishes programs of the node from others.
type Peers struct {
	users []uint32
	hosts map[string]host // by hierarchy
	find  func(local, remote netip.AddrPort) (socket, error)
	state func(syscall.Conn) (tcpState, error)
	procs *processes
}

// Conn is a TCP connection that this process has accepted, as *net.TCPConn is.
type Conn interface {
	syscall.Conn
	LocalAddr() net.Addr
	RemoteAddr() net.Addr
}

// New returns Peers for which programs of these users belong to the node. It fails if the machine
// does not support the check.
func New(users []uint32) (*Peers, error) { return newPeers(procfs, users) }

func newPeers(root string, users []uint32) (*Peers, error) {
	own, err := ownCgroups(root)
	if err != nil {
		return nil, fmt.Errorf("read own control groups: %w", err)
	}
	return &Peers{users: slices.Clone(users), hosts: hosts(own), find: findSocket, state: stateOf, procs: newProcesses(root)}, nil
}

// Reason is why a peer does not count as a program of the node. The values are suitable as
// metric labels.
type Reason string

// The reasons.
const (
	// NotLocal is a socket that is not in this machine's network namespace.
	NotLocal Reason = "not-local"
	// OtherUser is a program of a user who was not named.
	OtherUser Reason = "user"
	// InContainer is a program in a container.
	InContainer Reason = "container"
	// Unknown is a peer that could not be identified; a retry may succeed.
	Unknown Reason = "unknown"
)

// Reasons are all of them.
func Reasons() []Reason { return []Reason{NotLocal, OtherUser, InContainer, Unknown} }

// Refusal is the error for a peer that does not count as a program of the node. Unknown fields are
// zero.
type Refusal struct {
	Reason Reason
	Remote netip.AddrPort
	UID    uint32 // from OtherUser on
	PID    int
	Comm   string    // the program's short name
	In     Container // for InContainer
	Err    error     // for Unknown: the cause
}

func (r *Refusal) Error() string {
	switch r.Reason {
	case NotLocal:
		return fmt.Sprintf("%s is not an address of a program in this machine's own network", r.Remote)
	case OtherUser:
		return fmt.Sprintf("it comes from user ID %d", r.UID)
	case InContainer:
		return fmt.Sprintf("it comes from %s", r.In)
	default:
		return fmt.Sprintf("it could not be found out which program %s is: %v", r.Remote, r.Err)
	}
}

func (r *Refusal) Unwrap() error { return r.Err }

// Check returns nil if the program at the other end of c is one of the node's, or
// else a *Refusal. The verdict holds for all that was and will be read from c.
func (p *Peers) Check(c Conn) error {
	return p.checkConn(c, func(uid uint32) bool { return slices.Contains(p.users, uid) })
}

// CheckAnyUser is Check where it does not matter whose program it is.
func (p *Peers) CheckAnyUser(c Conn) error {
	return p.checkConn(c, func(uint32) bool { return true })
}

func (p *Peers) checkConn(c Conn, allowed func(uid uint32) bool) error {
	local, remote := addrPort(c.LocalAddr()), addrPort(c.RemoteAddr())
	refusal := p.checkPeer(local, remote, allowed)
	if err := p.connected(c); err != nil { // last: see there
		refusal = &Refusal{Reason: Unknown, Err: err}
	}
	if refusal == nil {
		return nil
	}
	refusal.Remote = remote
	return refusal
}

// connected returns nil if the socket that was looked up before by c's two addresses
// is c's other end.
//
// It need not be. A client that sends a request and resets the connection frees its
// port, while the request can still be read from c. The next program that draws this
// port gets a connection of its own with the same two addresses, and the request would
// pass for that program's. Nor does a client need to free its port: one that has bound
// its socket to a device shares its addresses with sockets that are bound to none.
//
// As long as c is connected, the kernel gives c every packet with these addresses,
// connection requests too, so that no other socket completes a handshake with them.
// One that has completed its handshake is therefore c's other end (see
// socket.isConnected), provided that c was still connected when it was looked up. A
// socket that was reset is closed for good, which is why it is enough to look at c
// afterwards. Where the client has only ended its own sending (CLOSE_WAIT), c is
// connected: it still waits for packets with these addresses.
func (p *Peers) connected(c Conn) error {
	state, err := p.state(c)
	if err != nil {
		return fmt.Errorf("read the state of its connection: %w", err)
	}
	if state != stateEstablished && state != stateCloseWait {
		return errReset
	}
	return nil
}

// Owner returns the user of the program at the other end of c. ok is false if this
// machine's own network has no such program, or if that cannot be determined.
func (p *Peers) Owner(c Conn) (uid uint32, ok bool) {
	s, err := p.find(addrPort(c.LocalAddr()), addrPort(c.RemoteAddr()))
	if err != nil || s.inode == 0 || !s.isConnected() || p.connected(c) != nil {
		return 0, false
	}
	return s.uid, true
}

// checkPeer returns nil for a program of the node.
func (p *Peers) checkPeer(local, remote netip.AddrPort, allowed func(uid uint32) bool) *Refusal {
	s, err := p.find(local, remote)
	switch {
	case err != nil:
		return &Refusal{Reason: Unknown, Err: err}
	case !s.found:
		return &Refusal{Reason: NotLocal}
	case s.inode == 0: // its program has closed it; the user that is told then is 0
		return &Refusal{Reason: Unknown, Err: errOrphan}
	case !s.isConnected():
		return &Refusal{Reason: Unknown, Err: errReset}
	case !allowed(s.uid):
		return &Refusal{Reason: OtherUser, UID: s.uid}
	}
	holders, err := p.procs.holding(s.inode)
	if err == nil && len(holders) == 0 {
		err = errNoHolder
	}
	if err != nil {
		return &Refusal{Reason: Unknown, UID: s.uid, Err: err}
	}
	for _, h := range holders { // all of them: a socket may be handed on
		r := p.checkProcess(h)
		p.procs.remember(h.pid, r == nil)
		if r != nil {
			r.UID, r.PID, r.Comm = s.uid, h.pid, h.comm
			return r
		}
	}
	return nil
}

// checkProcess returns nil for a process in no container.
func (p *Peers) checkProcess(h *process) *Refusal {
	if h.err != nil {
		return &Refusal{Reason: Unknown, Err: h.err}
	}
	if in, contained := inContainer(p.hosts, h.cgroups); contained {
		return &Refusal{Reason: InContainer, In: in}
	}
	return nil
}

// Identify fills in fields that Check omits because they require a scan of all processes:
// who is behind an OtherUser.
func (p *Peers) Identify(c Conn, r *Refusal) {
	if r.Reason != OtherUser {
		return
	}
	s, err := p.find(addrPort(c.LocalAddr()), addrPort(c.RemoteAddr()))
	if err != nil || s.inode == 0 || !s.isConnected() {
		return
	}
	holders, _ := p.procs.holding(s.inode) // none: then nobody is named
	if p.connected(c) != nil {
		return
	}
	for _, h := range holders {
		r.PID, r.Comm = h.pid, h.comm
		r.In, _ = inContainer(p.hosts, h.cgroups)
	}
}

// addrPort is zero, and nobody's, where a is no address of TCP.
func addrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

var (
	errOrphan   = errors.New("it has closed its connection")
	errReset    = errors.New("its connection was reset, and its port may be another program's by now")
	errExiting  = errors.New("it is exiting")
	errNoHolder = errors.New("no process that this one may look into holds its socket")
)
