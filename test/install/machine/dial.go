package machine

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Dial connects to an address of the machine's, its loopback included, as a program in
// its network would.
func (m *Machine) Dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	enterErr := m.InNetwork(func() {
		var dialer net.Dialer
		conn, err = dialer.DialContext(ctx, network, address)
	})
	if enterErr != nil {
		return nil, enterErr
	}
	return conn, err
}

// InNetwork calls f in the machine's network: sockets that f opens are the machine's.
func (m *Machine) InNetwork(f func()) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends, and nobody else is in that network
		err := m.enterNetwork()
		if err == nil {
			f()
		}
		done <- err
	}()
	return <-done
}

func (m *Machine) enterNetwork() error {
	namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", m.PID()))
	if err != nil {
		return err
	}
	defer namespace.Close()
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the machine's network: %w", err)
	}
	return nil
}
