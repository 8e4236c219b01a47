package cache

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

var (
	portsMu sync.Mutex       //nolint:gochecknoglobals // tests run beside each other
	ports   = map[int]bool{} //nolint:gochecknoglobals // see portsMu
)

// freePort returns a port from below the range that the system takes ports of
// outgoing connections from: it stays free while a hub or a link is down.
func freePort(t *testing.T) int {
	t.Helper()
	portsMu.Lock()
	defer portsMu.Unlock()
	const first, last = 30000, 32767
	for range 100 {
		port := first + rand.IntN(last-first+1)
		if ports[port] {
			continue
		}
		l, err := net.Listen("tcp", address(port))
		if err != nil {
			continue
		}
		l.Close()
		ports[port] = true
		return port
	}
	t.Fatal("no port is free")
	return 0
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
