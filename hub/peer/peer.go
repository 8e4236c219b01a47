package peer

import (
	"fmt"
	"net/netip"
	"slices"
)

// Peers tells node programs from others.
type Peers struct {
	users []uint32
	own   []membership // this process's
	find  func(local, remote netip.AddrPort) (socket, error)
	procs *processes
}

// New returns Peers that take programs of these users for the node's. Its error
// says that this kind of machine cannot tell.
func New(users []uint32) (*Peers, error) { return newPeers(procfs, users) }

func newPeers(root string, users []uint32) (*Peers, error) {
	own, err := ownCgroups(root)
	if err != nil {
		return nil, fmt.Errorf("read own control groups: %w", err)
	}
	return &Peers{users: slices.Clone(users), own: own, find: findSocket, procs: newProcesses(root)}, nil
}

// Reason is why a peer is not taken for a program of the node. The values are
// few, and good as labels.
type Reason string

// The reasons.
const (
	// NotLocal is a socket that is not in this machine's network namespace.
	NotLocal Reason = "not-local"
	// OtherUser is a program of a user who was not named.
	OtherUser Reason = "user"
	// InContainer is a program in a container.
	InContainer Reason = "container"
	// Unknown is a peer of which not everything could be found out. Asked again,
	// it may be known.
	Unknown Reason = "unknown"
)

// Reasons are all of them.
func Reasons() []Reason { return []Reason{NotLocal, OtherUser, InContainer, Unknown} }

// Refusal says that a peer is not taken for a program of the node, and all that
// was found out about it. Fields that were not are zero.
type Refusal struct {
	Reason Reason
	Remote netip.AddrPort
	UID    uint32 // from OtherUser on
	PID    int
	Comm   string    // the program's short name
	In     Container // for InContainer
	Err    error     // for Unknown: what went wrong
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

// Check returns nil if the program at remote, as seen from local, is one of the
// node's, or else a *Refusal.
func (p *Peers) Check(local, remote netip.AddrPort) error {
	return p.lookUp(local, remote, func(uid uint32) bool { return slices.Contains(p.users, uid) })
}

// CheckAnyUser is Check where it does not matter whose program it is.
func (p *Peers) CheckAnyUser(local, remote netip.AddrPort) error {
	return p.lookUp(local, remote, func(uint32) bool { return true })
}

func (p *Peers) lookUp(local, remote netip.AddrPort, allowed func(uid uint32) bool) error {
	remote = unmapped(remote)
	s, err := p.find(unmapped(local), remote)
	switch {
	case err != nil:
		return &Refusal{Reason: Unknown, Remote: remote, Err: err}
	case !s.found:
		return &Refusal{Reason: NotLocal, Remote: remote}
	case s.inode == 0: // its program has closed it; the user that is told then is 0
		return &Refusal{Reason: Unknown, Remote: remote, Err: errOrphan}
	case !allowed(s.uid):
		return &Refusal{Reason: OtherUser, Remote: remote, UID: s.uid}
	}
	holders, err := p.procs.holding(s.inode)
	if err == nil && len(holders) == 0 {
		err = errNoHolder
	}
	if err != nil {
		return &Refusal{Reason: Unknown, Remote: remote, UID: s.uid, Err: err}
	}
	for _, h := range holders { // all of them: a socket may be handed on
		r := p.judge(h)
		p.procs.remember(h.pid, r == nil)
		if r != nil {
			r.Remote, r.UID, r.PID, r.Comm = remote, s.uid, h.pid, h.comm
			return r
		}
	}
	return nil
}

// Owner returns the user of the program at remote, as seen from local. It says no where
// this machine's own network has no such program, or that cannot be found out.
func (p *Peers) Owner(local, remote netip.AddrPort) (uid uint32, ok bool) {
	s, err := p.find(unmapped(local), unmapped(remote))
	if err != nil || !s.found || s.inode == 0 {
		return 0, false
	}
	return s.uid, true
}

// judge returns nil for a process in no container.
func (p *Peers) judge(h *process) *Refusal {
	if h.err != nil {
		return &Refusal{Reason: Unknown, Err: h.err}
	}
	if in, contained := inContainer(p.own, h.cgroups); contained {
		return &Refusal{Reason: InContainer, In: in}
	}
	return nil
}

// Identify fills in what Check leaves out since it costs a look at every process:
// who is behind an OtherUser.
func (p *Peers) Identify(local netip.AddrPort, r *Refusal) {
	if r.Reason != OtherUser {
		return
	}
	s, err := p.find(unmapped(local), r.Remote)
	if err != nil || !s.found || s.inode == 0 {
		return
	}
	holders, _ := p.procs.holding(s.inode) // none: then nobody is named
	for _, h := range holders {
		r.PID, r.Comm = h.pid, h.comm
		r.In, _ = inContainer(p.own, h.cgroups)
	}
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
