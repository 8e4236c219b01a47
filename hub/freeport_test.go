package hub

import (
	"syscall"
	"testing"
)

// freePort returns a port of 127.0.0.1 where a hub may listen again and again, and that nobody else gets until
// the test ends. A socket is bound to the port and does not listen: Linux gives the port to no one who asks for
// any, and, with SO_REUSEADDR, which net.Listen sets, too, to whoever names it.
func freePort(t *testing.T) int {
	t.Helper()
	syscall.ForkLock.RLock()
	s, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(s)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(s) })
	err = syscall.Bind(s, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	if err == nil {
		err = syscall.SetsockoptInt(s, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	bound, err := syscall.Getsockname(s)
	if err != nil {
		t.Fatal(err)
	}
	return bound.(*syscall.SockaddrInet4).Port
}
