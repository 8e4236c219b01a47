package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
)

// machineLockName is a socket in Linux's abstract namespace: it is no file, and
// it is free again when its holder is gone, however that ended.
const machineLockName = "@edgehub-test-cluster-nodes"

// machineLock is held by the one cluster of the machine that has nodes. Their
// addresses, interfaces and control groups have fixed names, so that whatever
// a cluster that crashed has left is found by the next one.
type machineLock struct {
	listener net.Listener
	done     sync.WaitGroup
}

// lockMachine takes the lock. While another cluster has it, it calls waiting
// once with that one's folder, and waits.
func lockMachine(ctx context.Context, dir string, waiting func(holder string)) (*machineLock, error) {
	told := false
	var lock *machineLock
	err := poll(ctx, func(ctx context.Context) error {
		listener, err := net.Listen("unix", machineLockName)
		if err == nil {
			lock = &machineLock{listener: listener}
			return nil
		}
		holder := lockHolder(ctx)
		if !told {
			told = true
			waiting(holder)
		}
		return fmt.Errorf("the cluster in %s has nodes, too", holder)
	})
	if err != nil {
		return nil, fmt.Errorf("wait for the machine: %w", err)
	}
	lock.done.Go(func() { lock.answer(dir) })
	return lock, nil
}

// answer sends to who asks where the holder's folder is.
func (l *machineLock) answer(dir string) {
	for {
		conn, err := l.listener.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, dir)
		_ = conn.Close()
	}
}

func (l *machineLock) release() error {
	err := l.listener.Close()
	l.done.Wait()
	return err
}

// ClaimMachine takes the machine as a cluster with nodes does, for nodes that are not of a
// [Cluster], and returns what gives it back. While another has it, it says so and waits.
func ClaimMachine(ctx context.Context, dir string, log io.Writer) (release func() error, err error) {
	lock, err := lockMachine(ctx, dir, func(holder string) {
		fmt.Fprintf(log, "waiting for the cluster in %s, which has nodes, to stop\n", holder)
	})
	if err != nil {
		return nil, err
	}
	return lock.release, nil
}

func lockHolder(ctx context.Context) string {
	const unknown = "(unknown)"
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", machineLockName)
	if err != nil {
		return unknown
	}
	defer conn.Close()
	dir, err := io.ReadAll(conn)
	if err != nil || len(dir) == 0 {
		return unknown
	}
	return string(dir)
}
