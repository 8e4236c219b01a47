package peer

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// procfs is where Linux tells about processes.
const procfs = "/proc"

// process is one that holds a socket, as it was when it was looked at.
type process struct {
	pid     int
	comm    string
	cgroups []membership
	err     error // why cgroups are not known
}

// maxFamiliar is how many processes of either kind are remembered. A node has a
// handful of programs that come again.
const maxFamiliar = 16

// processes finds out which processes hold a socket.
type processes struct {
	root string // of procfs
	all  func(root string, holders map[uint32][]*process) error

	mu sync.Mutex
	// IDs of processes that had a connection before, by whether they were the
	// node's, so that no others push those out; the latest last.
	familiar map[bool][]int
	next     *scan // one that has not begun; nil: none is wanted

	scanning sync.Mutex
	rested   time.Time // when all processes may be looked at again. Under scanning
}

// After a look at all processes there is none for restFactor times as long as it took,
// but no longer than maxRest: whoever opens connections, each by another process, has
// the hub use a fraction of a core, and who waits meanwhile shares the next look.
const (
	restFactor = 3
	maxRest    = 250 * time.Millisecond
)

// scan is one look for the holders of some sockets, for all who wait for it.
type scan struct {
	holders map[uint32][]*process // by inode; wanted ones have a key. Under processes.mu until the scan begins
	done    bool                  // under processes.scanning
	err     error
}

func newProcesses(root string) *processes {
	return &processes{root: root, all: lookAtAll, familiar: map[bool][]int{}}
}

// holding returns the processes that hold the socket with this inode: the first one
// found among those that had connections before, or else all. An error means that
// there may be more.
//
// A look costs some microseconds for each file that a process has open. However many
// ask at a time, it is taken twice at most until each has its answer: once that had
// begun already, and once for all who came meanwhile.
func (p *processes) holding(inode uint32) ([]*process, error) {
	s := p.join(inode)
	p.scanning.Lock()
	defer p.scanning.Unlock()
	if !s.done {
		p.mu.Lock()
		p.next = nil // nobody joins from here on
		p.mu.Unlock()
		s.err = p.find(s.holders)
		s.done = true
	}
	return s.holders[inode], s.err
}

// find fills in who holds the sockets that holders has keys for. scanning is held.
func (p *processes) find(holders map[uint32][]*process) error {
	missing := maps.Clone(holders)
	for _, pid := range p.toTryFirst() {
		look(p.root, pid, missing)
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
	if wait := time.Until(p.rested); wait > 0 {
		<-time.After(wait)
	}
	began := time.Now()
	err := p.all(p.root, missing)
	now := time.Now()
	p.rested = now.Add(min(restFactor*now.Sub(began), maxRest))
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

// remember has holding look at the process first from now on.
func (p *processes) remember(pid int, node bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := slices.DeleteFunc(p.familiar[node], func(known int) bool { return known == pid })
	if len(list) == maxFamiliar {
		list = slices.Delete(list, 0, 1)
	}
	p.familiar[node] = append(list, pid)
}

// toTryFirst is the node's own processes first, of either kind the latest first.
func (p *processes) toTryFirst() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	pids := make([]int, 0, 2*maxFamiliar)
	for _, node := range []bool{true, false} {
		for _, pid := range slices.Backward(p.familiar[node]) {
			pids = append(pids, pid)
		}
	}
	return pids
}
