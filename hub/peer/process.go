package peer

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// procfs is the mount point of Linux's process information.
const procfs = "/proc"

// process is a process that holds a socket, at the time of the scan.
type process struct {
	pid     int
	comm    string
	cgroups []membership
	err     error // why cgroups are unknown
}

// maxRecent is how many processes of either kind are remembered. A node has a handful of
// programs that connect repeatedly.
const maxRecent = 16

// processes finds out which processes hold a socket.
type processes struct {
	root string // of procfs
	all  func(root string, holders map[uint32][]*process) error

	mu sync.Mutex
	// IDs of processes that had a connection before, by whether they are the node's, so that
	// others do not displace these; the latest last.
	recent map[bool][]int
	next   *scan // has not begun yet; nil: none is needed

	scanning sync.Mutex
	nextScan time.Time // earliest time of the next scan of all processes; under scanning
}

// After a scan of all processes, the next one is delayed by pauseFactor times its duration, at
// most maxPause: a client that opens connections from ever new processes costs only a fraction
// of a core. All that wait share the next scan.
const (
	pauseFactor = 3
	maxPause    = 250 * time.Millisecond
)

// scan is one search for the holders of some sockets, shared by all that wait for it.
type scan struct {
	holders map[uint32][]*process // by inode; wanted ones have a key. Under processes.mu until the scan begins
	done    bool                  // under processes.scanning
	err     error
}

func newProcesses(root string) *processes {
	return &processes{root: root, all: scanAll, recent: map[bool][]int{}}
}

// holding returns the processes that hold the socket with this inode: the first one found among
// those that had connections before, or else all. An error means that there may be more.
//
// A scan costs some microseconds for each open file. Concurrent calls wait for two scans at
// most: one that has begun already, and one for all calls since.
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

// find fills in the holders of the sockets that holders has keys for. scanning is held.
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

// remember makes holding scan this process first.
func (p *processes) remember(pid int, node bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := slices.DeleteFunc(p.recent[node], func(known int) bool { return known == pid })
	if len(list) == maxRecent {
		list = slices.Delete(list, 0, 1)
	}
	p.recent[node] = append(list, pid)
}

// recentPIDs returns the node's own processes first, of either kind the latest first.
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
