package peer

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// process is a process that held a socket at the time of a scan.
type process struct {
	pid     int
	comm    string
	cgroups []membership
	err     error // why cgroups are unknown, or nil
}

// maxRecent is how many processes are remembered of the node, and how many others. A node has
// a handful of programs that connect repeatedly.
const maxRecent = 16

// processes finds the processes that hold a socket.
type processes struct {
	root    string              // of procfs
	network string              // this process's network namespace; empty if the kernel has none
	all     func(*search) error // (*search).everywhere; tests replace it

	mu sync.Mutex
	// recent are the PIDs of processes that had a connection before, the latest last. The key is
	// whether they are the node's: other programs must not displace those.
	recent map[bool][]int
	next   *scan // has not begun; nil: nobody waits for one

	scanning sync.Mutex // held during a scan
	nextScan time.Time  // earliest time of the next scan
}

func newProcesses(root string) *processes {
	return &processes{root: root, network: ownNetwork(root), all: (*search).everywhere, recent: map[bool][]int{}}
}

// After a scan, the next one is delayed by pauseFactor times its duration: a client that connects from
// ever new processes, or holds many files, takes only a fraction of a core. All callers that wait share
// the next scan.
const pauseFactor = 3

// search looks into processes for the holders of some sockets.
//
// It reads the open files of a process only if that is in this network, and its real user is one of
// the sockets' or root: the files that others hold delay nobody, however many. The effective user
// does not count, since a setuid program inherits the files of whoever starts it. A socket whose
// holders are all left out has none, and its connection is refused.
type search struct {
	root, network string                // as in processes
	users         map[uint32]bool       // whose processes are looked into
	holders       map[uint32][]*process // by inode, with a key for each wanted one
}

// scan is one search, shared by all callers that wait for it.
type scan struct {
	search      // processes.mu guards it until the scan begins, processes.scanning afterwards
	done   bool // guarded by processes.scanning, as is err
	err    error
}

func (p *processes) newSearch(sockets ...socket) search {
	s := search{root: p.root, network: p.network, users: map[uint32]bool{0: true}, holders: map[uint32][]*process{}}
	for _, wanted := range sockets {
		s.want(wanted)
	}
	return s
}

func (s *search) want(sock socket) { s.users[sock.uid], s.holders[sock.inode] = true, nil }

// holding returns the processes that hold a socket: one that had connections before, if there is
// one, and otherwise all. With an error, there may be more.
//
// A scan takes some microseconds per open file. A call waits for two scans at most: one that has
// begun before, and one for all calls since. For the node's programs that are known, it waits for none.
func (p *processes) holding(sock socket) ([]*process, error) {
	known := p.newSearch(sock)
	for _, pid := range p.recentPIDs(true) {
		if known.in(pid); len(known.holders[sock.inode]) > 0 {
			return known.holders[sock.inode], nil
		}
	}
	s := p.join(sock)
	p.scanning.Lock()
	defer p.scanning.Unlock()
	if !s.done {
		p.mu.Lock()
		p.next = nil // later calls join the next scan
		p.mu.Unlock()
		s.err = p.find(&s.search)
		s.done = true
	}
	return s.holders[sock.inode], s.err
}

// find fills in the holders, after a rest. The caller holds scanning.
func (p *processes) find(s *search) error {
	if wait := time.Until(p.nextScan); wait > 0 {
		<-time.After(wait)
	}
	began := time.Now()
	defer func() {
		now := time.Now()
		p.nextScan = now.Add(pauseFactor * now.Sub(began))
	}()
	missing := *s
	missing.holders = maps.Clone(s.holders)
	for _, pid := range slices.Concat(p.recentPIDs(true), p.recentPIDs(false)) {
		missing.in(pid)
		for inode, found := range missing.holders {
			if len(found) > 0 {
				s.holders[inode] = found
				delete(missing.holders, inode)
			}
		}
		if len(missing.holders) == 0 {
			return nil
		}
	}
	err := p.all(&missing)
	maps.Copy(s.holders, missing.holders)
	return err
}

func (p *processes) join(sock socket) *scan {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == nil {
		p.next = &scan{search: p.newSearch()}
	}
	p.next.want(sock)
	return p.next
}

// remember makes later calls of holding look at this process first.
func (p *processes) remember(pid int, node bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := slices.DeleteFunc(p.recent[node], func(known int) bool { return known == pid })
	if len(list) == maxRecent {
		list = slices.Delete(list, 0, 1)
	}
	p.recent[node] = append(list, pid)
}

// recentPIDs returns the node's processes, or the others, the latest first.
func (p *processes) recentPIDs(node bool) []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	pids := slices.Clone(p.recent[node])
	slices.Reverse(pids)
	return pids
}
