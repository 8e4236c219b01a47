// Package freeport finds TCP ports of 127.0.0.1 for what tests start.
//
// They are below the range that Linux uses for outgoing connections (from 32768 on,
// ip_local_port_range), so that what is down for a while finds its port free when it
// comes back; and no other process that uses this package gets them, as long as this
// one lives: tests of several packages run beside each other.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

const (
	first = 20000
	last  = 32767
	// blockSize is how many ports a process claims at once.
	blockSize = 64
	blocks    = (last - first + 1) / blockSize
)

var (
	mu      sync.Mutex //nolint:gochecknoglobals // ports are the machine's
	left    []int      //nolint:gochecknoglobals // of the blocks that are claimed; guarded by mu
	claimed []*os.File //nolint:gochecknoglobals // locked until the process ends; guarded by mu
)

// Take returns a port that is free, and that nobody else is given.
func Take() (int, error) {
	mu.Lock()
	defer mu.Unlock()
	for {
		if len(left) == 0 {
			if err := claim(); err != nil {
				return 0, err
			}
		}
		port := left[0]
		left = left[1:]
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, listener.Close()
		}
	}
}

// claim locks a block of ports that no process has, and adds it to left.
func claim() error {
	for _, block := range rand.Perm(blocks) {
		name := filepath.Join(os.TempDir(), "edgehub-ports-"+strconv.Itoa(first+block*blockSize))
		file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o666)
		if err != nil {
			return fmt.Errorf("claim ports: %w", err)
		}
		if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			_ = file.Close()
			continue // another process has it
		}
		claimed = append(claimed, file)
		for i := range blockSize {
			left = append(left, first+block*blockSize+i)
		}
		return nil
	}
	return errors.New("claim ports: other processes have them all")
}
