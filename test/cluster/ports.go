package cluster

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports are taken from below the range that Linux uses for outgoing
// connections (from 32768 on, ip_local_port_range), so that a component that is
// down for a while finds its port free when it comes back.
const (
	firstPort    = 20000
	lastPort     = 29999
	portAttempts = 100
)

// ports hands out free TCP ports of 127.0.0.1, none of them twice.
type ports struct {
	mu    sync.Mutex
	taken map[int]bool
}

// next returns a free port.
func (p *ports) next() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken == nil {
		p.taken = map[int]bool{}
	}
	var last error
	for range portAttempts {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if p.taken[port] {
			continue
		}
		listener, err := net.Listen("tcp", loopback(port))
		if err != nil {
			last = err
			continue
		}
		_ = listener.Close()
		p.taken[port] = true
		return port, nil
	}
	return 0, fmt.Errorf("find a free port of 127.0.0.1 between %d and %d: %w", firstPort, lastPort, last)
}

func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
