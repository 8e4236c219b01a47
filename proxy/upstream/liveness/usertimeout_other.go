//go:build !linux

package liveness

import (
	"syscall"
	"time"
)

// setUserTimeout does nothing where there is no such option: a connection that
// is lost is then noticed later.
func setUserTimeout(syscall.RawConn, time.Duration) error { return nil }
