package access

import (
	"runtime"
	"sync"
)

// turns bounds for how many connections the hub uses the CPU before a request has arrived, which costs
// it a TLS handshake of about a millisecond. Peers take turns, so that one with thousands of
// connections delays its own, and those of others by one handshake of each peer. Connections of the
// node need no turn. It is safe for concurrent use.
type turns struct {
	mu      sync.Mutex
	free    int
	waiting map[string][]chan struct{} // by peer; closed when it is their turn
	next    []string                   // the peers that wait
}

// newTurns has as many as there are cores: Go's scheduler serves all goroutines in the order in which they
// can run, so that each of the node's waits for those few, and not for every connection.
func newTurns() *turns {
	return &turns{free: runtime.GOMAXPROCS(0), waiting: map[string][]chan struct{}{}}
}

// wait returns when it is the peer's turn.
func (t *turns) wait(peer string) {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return
	}
	turn := make(chan struct{})
	if len(t.waiting[peer]) == 0 {
		t.next = append(t.next, peer)
	}
	t.waiting[peer] = append(t.waiting[peer], turn)
	t.mu.Unlock()
	<-turn
}

// end passes a turn on.
func (t *turns) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.next) == 0 {
		t.free++
		return
	}
	peer := t.next[0]
	t.next = t.next[1:]
	turn, rest := t.waiting[peer][0], t.waiting[peer][1:]
	if len(rest) == 0 {
		delete(t.waiting, peer)
	} else {
		t.waiting[peer] = rest
		t.next = append(t.next, peer)
	}
	close(turn)
}
