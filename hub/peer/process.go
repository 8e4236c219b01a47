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
	root string                                                 // of procfs
	all  func(root string, holders map[uint32][]*process) error // scanAll; tests replace it

	mu sync.Mutex
	// recent are the PIDs of processes that had a connection before, the latest last. The key is
	// whether they are the node's: other programs must not displace those.
	recent map[bool][]int
	next   *scan // has not begun; nil: nobody waits for one

	scanning sync.Mutex // held during a scan
	nextScan time.Time  // earliest time of the next scan of all processes
}

// After a scan of all processes, the next one is delayed by pauseFactor times its duration, at
// most maxPause: a client that connects from ever new processes takes only a fraction of a core.
// All callers that wait share the next scan.
const (
	pauseFactor = 3
	maxPause    = 250 * time.Millisecond
)

// scan is one search for the holders of some sockets, shared by all callers that wait for it.
type scan struct {
	// holders are by inode, and have a key for each wanted one. processes.mu guards it until the
	// scan begins, processes.scanning afterwards.
	holders map[uint32][]*process
	done    bool // guarded by processes.scanning, as is err
	err     error
}

// holding returns the processes that hold the socket with this inode: one that had connections
// before, if there is one, and otherwise all. With an error, there may be more.
//
// A scan takes some microseconds per open file. A call waits for two scans at most: one that has
// begun before, and one for all calls since.
func (p *processes) holding(inode uint32) ([]*process, error) {
	s := p.join(inode)
	p.scanning.Lock()
	defer p.scanning.Unlock()
	if !s.done {
		p.mu.Lock()
		p.next = nil // later calls join the next scan
		p.mu.Unlock()
		s.err = p.find(s.holders)
		s.done = true
	}
	return s.holders[inode], s.err
}

// find fills in the holders of the sockets that are keys of holders. The caller holds scanning.
func (p *processes) find(holders map[uint32][]*process) error {
	missing := maps.Clone(holders)
	for _, pid := range p.recentPIDs() {
		scanProcess(p.root, pid, missing)
		for inode, found := range missing {
			if len(found) > 0 {
				holders[inode] = found
				delete(missing, inode)
			}
		}
		if len(missing) == 0 {
			return nil
		}
	}
	if wait := time.Until(p.nextScan); wait > 0 {
		<-time.After(wait)
	}
	began := time.Now()
	err := p.all(p.root, missing)
	now := time.Now()
	p.nextScan = now.Add(min(pauseFactor*now.Sub(began), maxPause))
	maps.Copy(holders, missing)
	return err
}

func (p *processes) join(inode uint32) *scan {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == nil {
		p.next = &scan{holders: map[uint32][]*process{}}
	}
	p.next.holders[inode] = nil
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

// recentPIDs returns the node's processes and then the others, each the latest first.
func (p *processes) recentPIDs() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	pids := make([]int, 0, 2*maxRecent)
	for _, node := range []bool{true, false} {
		for _, pid := range slices.Backward(p.recent[node]) {
			pids = append(pids, pid)
		}
	}
	return pids
}
