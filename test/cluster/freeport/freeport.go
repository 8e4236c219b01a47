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
		file, err := lock(block)
		if err != nil {
			return fmt.Errorf("claim ports: %w", err)
		}
		if file == nil {
			continue
		}
		claimed = append(claimed, file)
		for i := range blockSize {
			left = append(left, first+block*blockSize+i)
		}
		return nil
	}
	return errors.New("claim ports: other processes have them all")
}

func lockFile(block int) string {
	return filepath.Join(os.TempDir(), "edgehub-ports-"+strconv.Itoa(first+block*blockSize))
}

// lock locks a block; nil: another process has it.
func lock(block int) (*os.File, error) {
	file, err := os.OpenFile(lockFile(block), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, nil //nolint:nilerr // as above
	}
	return file, nil
}

// Blocks counts those that no process has claimed, of all that there are. Each process
// that takes ports claims one, and another when that is used up.
func Blocks() (free, all int, err error) {
	for block := range blocks {
		if _, err := os.Stat(lockFile(block)); os.IsNotExist(err) {
			free++ // nobody ever had it
			continue
		}
		file, err := lock(block)
		if err != nil {
			return 0, 0, fmt.Errorf("count ports: %w", err)
		}
		if file != nil {
			free++
			_ = file.Close()
		}
	}
	return free, blocks, nil
}
