// Package freeport finds ports for what tests start.
package freeport

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// first and last are below the range that the system takes ports of outgoing
// connections from, so that a port stays free while what listens there is down; and
// they are none of test/cluster's.
const first, last = 30000, 32767

var (
	mu    sync.Mutex       //nolint:gochecknoglobals // tests run beside each other
	taken = map[int]bool{} //nolint:gochecknoglobals // see mu
)

// On127 returns a free port of 127.0.0.1, which no one in this process gets again.
func On127(t testing.TB) int {
	t.Helper()
	mu.Lock()
	defer mu.Unlock()
	for range 100 {
		port := first + rand.IntN(last-first+1)
		if taken[port] {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		l.Close()
		taken[port] = true
		return port
	}
	t.Fatal("no port is free")
	return 0
}
