package systemd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"
)

// firstFD is the first file descriptor that systemd passes (sd_listen_fds(3)).
const firstFD = 3

// Listeners are the sockets that systemd has opened for this process, by address. systemd keeps
// them open when the process ends, so that connections wait for the next process during a restart
// or an upgrade.
type Listeners map[string]net.Listener

// InheritListeners returns the sockets that systemd has opened, or nil without systemd.
func InheritListeners() (Listeners, error) {
	pid, count := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		_ = os.Unsetenv(name)
	}
	if pid != strconv.Itoa(os.Getpid()) {
		return nil, nil //nolint:nilnil // a map that is only read and emptied
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 0 {
		return nil, fmt.Errorf("sockets from systemd: LISTEN_FDS is %q", count)
	}
	all := Listeners{}
	for fd := firstFD; fd < firstFD+n; fd++ {
		file := os.NewFile(uintptr(fd), "socket from systemd")
		l, err := net.FileListener(file) // a copy, closed on exec
		file.Close()
		if err != nil {
			all.Close()
			return nil, fmt.Errorf("sockets from systemd: descriptor %d: %w", fd, err)
		}
		all[l.Addr().String()] = l
	}
	return all, nil
}

// Take returns and removes the listener for an address, or opens one.
func (i Listeners) Take(address string) (net.Listener, error) {
	if l, ok := i[address]; ok {
		delete(i, address)
		return l, nil
	}
	var config net.ListenConfig
	return config.Listen(context.Background(), "tcp", address)
}

// Reject closes connections to the sockets that were not taken, until Close. Without it these
// connections would hang, since systemd keeps the sockets open.
func (i Listeners) Reject(log *slog.Logger) {
	for address, l := range i {
		log.Warn("systemd has opened a socket that no flag of the hub names; run edgehub install again, so that edgehub.socket is as the flags are", "address", address)
		go func() {
			for {
				conn, err := l.Accept()
				if errors.Is(err, net.ErrClosed) {
					return
				}
				if err != nil { // too many open files, for example
					<-time.After(time.Second)
					continue
				}
				conn.Close()
			}
		}()
	}
}

// Close closes the sockets that were not taken.
func (i Listeners) Close() {
	for _, l := range i {
		l.Close()
	}
}
