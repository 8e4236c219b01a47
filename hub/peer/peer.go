package peer

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
)

// Peers identifies the programs at the other ends of connections.
type Peers struct {
	users []uint32
	hosts map[string]host                                    // by hierarchy
	find  func(local, remote netip.AddrPort) (socket, error) // a socketFinder; tests replace it
	state func(syscall.Conn) (tcpState, error)               // stateOf; tests replace it
	// Sockets of the users and of others have scans of their own: others delay no program of the node's.
	procs, others *processes
}

// Conn is an accepted TCP connection, such as a *net.TCPConn.
type Conn interface {
	syscall.Conn
	LocalAddr() net.Addr
	RemoteAddr() net.Addr
}

// New returns Peers that count programs of these users as the node's. It fails if the machine does
// not support the check.
func New(users []uint32) (*Peers, error) { return newPeers("/proc", users) }

func newPeers(root string, users []uint32) (*Peers, error) {
	own, err := ownCgroups(root)
	if err != nil {
		return nil, fmt.Errorf("read own control groups: %w", err)
	}
	return &Peers{
		users: slices.Clone(users), hosts: hosts(own), find: socketFinder(), state: stateOf, procs: newProcesses(root), others: newProcesses(root),
	}, nil
}

// processes returns those that look for the holders of a user's sockets.
func (p *Peers) processes(uid uint32) *processes {
	if slices.Contains(p.users, uid) {
		return p.procs
	}
	return p.others
}

// Reason is why a peer does not count as a program of the node. The values are suitable as
// metric labels.
type Reason string

// The reasons.
const (
	NotLocal    Reason = "not-local" // the socket is not in this machine's network namespace
	OtherUser   Reason = "user"      // the program's user is not allowed
	InContainer Reason = "container" // the program is in a container
	Unknown     Reason = "unknown"   // the peer could not be identified; a retry may succeed
)

// Reasons returns all reasons.
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

// Check returns nil if the program at the other end of c is the node's, and a *Refusal
// otherwise. The verdict covers everything that was and will be read from c.
func (p *Peers) Check(c Conn) error {
	return p.checkConn(c, p.IsNodes)
}

// CheckAnyUser is Check without the condition on the user.
func (p *Peers) CheckAnyUser(c Conn) error {
	return p.checkConn(c, func(uint32) bool { return true })
}

func (p *Peers) checkConn(c Conn, allowed func(uid uint32) bool) error {
	local, remote := addrPort(c.LocalAddr()), addrPort(c.RemoteAddr())
	refusal := p.checkPeer(local, remote, allowed)
	if err := p.connected(c); err != nil { // after the lookup: see connected
		refusal = &Refusal{Reason: Unknown, Err: err}
	}
	if refusal == nil {
		return nil
	}
	refusal.Remote = remote
	return refusal
}

// connected returns nil if c is still connected. Only then is a socket that was looked
// up before, by c's two addresses, the other end of c.
//
// Otherwise it may be another program's. A client that sends a request and resets the
// connection frees its port, while the request can still be read from c. The next
// program that gets this port may open a connection with the same two addresses, and
// the request would count as that program's. A client does not even have to free its
// port: a socket that is bound to a device does not keep its addresses from sockets
// that are bound to no device.
//
// As long as c is connected, the kernel delivers every packet with these addresses to
// c, connection requests included, so that no other socket can complete a handshake
// with them. A socket that has completed its handshake (see socket.isConnected) is
// therefore the other end of c, if c was still connected at the lookup. A connection
// that was reset stays closed, so checking c after the lookup is enough. If the client
// has only ended its own sending (CLOSE_WAIT), c is connected: it still waits for
// packets with these addresses.
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

// Owner returns the user of the program at the other end of c. ok is false if there is
// no such program in this machine's network namespace, or if that cannot be determined.
func (p *Peers) Owner(c Conn) (uid uint32, ok bool) {
	s, err := p.find(addrPort(c.LocalAddr()), addrPort(c.RemoteAddr()))
	if err != nil || s.inode == 0 || !s.isConnected() || p.connected(c) != nil {
		return 0, false
	}
	return s.uid, true
}

// IsNodes reports whether a user is one whose programs may be the node's.
func (p *Peers) IsNodes(uid uint32) bool { return slices.Contains(p.users, uid) }

// Pod returns the UID of the pod in which the program at the other end of c is; empty if it is in none that kubelet
// has started. The error is a *Refusal if that is not known. Like Check, Pod may wait for a scan.
func (p *Peers) Pod(c Conn) (uid string, err error) {
	err = p.CheckAnyUser(c)
	if refusal, ok := errors.AsType[*Refusal](err); ok && refusal.Reason == InContainer {
		return refusal.In.Pod, nil
	}
	return "", err
}

// checkPeer returns nil if the socket with these addresses belongs to a program of the node.
func (p *Peers) checkPeer(local, remote netip.AddrPort, allowed func(uid uint32) bool) *Refusal {
	s, err := p.find(local, remote)
	switch {
	case err != nil:
		return &Refusal{Reason: Unknown, Err: err}
	case !s.found:
		return &Refusal{Reason: NotLocal}
	case s.inode == 0: // its program has closed it, and the kernel reports user 0
		return &Refusal{Reason: Unknown, Err: errOrphan}
	case !s.isConnected():
		return &Refusal{Reason: Unknown, Err: errReset}
	case !allowed(s.uid):
		return &Refusal{Reason: OtherUser, UID: s.uid}
	}
	procs := p.processes(s.uid)
	holders, err := procs.holding(s)
	if err == nil && len(holders) == 0 {
		err = errNoHolder
	}
	if err != nil {
		return &Refusal{Reason: Unknown, UID: s.uid, Err: err}
	}
	for _, h := range holders { // all of them: a process may pass its socket to another
		r := p.checkProcess(h)
		procs.remember(h.pid, r == nil && procs == p.procs)
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

// Identify fills in the process behind an OtherUser, which Check leaves out since it may take
// a scan of all processes.
func (p *Peers) Identify(c Conn, r *Refusal) {
	if r.Reason != OtherUser {
		return
	}
	s, err := p.find(addrPort(c.LocalAddr()), addrPort(c.RemoteAddr()))
	if err != nil || s.inode == 0 || !s.isConnected() {
		return
	}
	holders, _ := p.processes(s.uid).holding(s) // without any, r stays as it is
	if p.connected(c) != nil {
		return
	}
	for _, h := range holders {
		r.PID, r.Comm = h.pid, h.comm
		r.In, _ = inContainer(p.hosts, h.cgroups)
	}
}

// addrPort returns the zero AddrPort, which no socket has, if a is not a TCP address.
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
	errNoHolder = errors.New("no process of its user or of root, in this network, that this one may look into holds its socket")
)
