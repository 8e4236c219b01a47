// Package freeport finds TCP ports of 127.0.0.1 for what tests start.
//
// They are below the range that Linux uses for outgoing connections (from 32768 on,
// ip_local_port_range), also in network namespaces that tests make. This process keeps a socket
// bound to each port until it ends, which never listens: what is started may listen there, also
// again after it was down, and nobody else gets the port, in this process or another.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"syscall"
)

const (
	first = 20000
	last  = 32767
)

// Take returns a port that is free, and that nobody else is given.
func Take() (int, error) {
	port, _, err := take() // the socket is open until the process ends
	return port, err
}

// take does not listen to find out what is free: a process that this one starts meanwhile would have
// the listener, too, until it runs its program, and the port would not be free at once.
func take() (port, socket int, err error) {
	const ports = last - first + 1
	start := rand.IntN(ports)
	for i := range ports {
		port := first + (start+i)%ports
		socket, err := reserve(port)
		if err == nil {
			return port, socket, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return 0, 0, fmt.Errorf("reserve a port: %w", err)
		}
	}
	return 0, 0, errors.New("reserve a port: all are in use")
}

// Address is a port of Take's, with the host.
func Address() (string, error) {
	port, err := Take()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
}

// reserve binds a socket to the port. SO_REUSEADDR is not set before: the port is nobody else's. It
// is set then: whoever sets it, too, as Go's net.Listen does, may listen as long as nobody else does.
func reserve(port int) (socket int, err error) {
	socket, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	err = syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: port})
	if err == nil {
		err = syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	}
	if err != nil {
		_ = syscall.Close(socket)
	}
	return socket, err
}

// Free counts the ports that Take could return, up to enough.
func Free(enough int) int {
	free := 0
	for port := first; port <= last && free < enough; port++ {
		if socket, err := reserve(port); err == nil {
			_ = syscall.Close(socket)
			free++
		}
	}
	return free
}
