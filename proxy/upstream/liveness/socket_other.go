//go:build !linux

package liveness

import (
	"net"
	"syscall"
	"time"
)

// tcpBacklog knows nothing on this system: only bytes that arrive count as activity.
func tcpBacklog(net.Conn) func() (acked uint64, waiting bool) {
	return func() (uint64, bool) { return 0, false }
}

// setUserTimeout does nothing where there is no such option: a lost upgraded connection is
// noticed later.
func setUserTimeout(syscall.RawConn, time.Duration) error { return nil }
