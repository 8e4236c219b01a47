package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
)

// lockPrefix begins the name of each lock: a socket in Linux's abstract namespace. It is no
// file, and it is free again when its holder is gone, however that ended.
const lockPrefix = "@edgehub-test-cluster-"

// nodesLock is held by the one cluster of the machine that has nodes. Their addresses,
// interfaces and control groups have fixed names, so that whatever a cluster that crashed
// has left is found by the next one.
const nodesLock = "nodes"

type machineLock struct {
	listener net.Listener
	done     sync.WaitGroup
}

// lockMachine takes a lock for the cluster in dir. While another has it, it calls waiting
// once with that one's folder, and waits.
func lockMachine(ctx context.Context, name, dir string, waiting func(holder string)) (*machineLock, error) {
	told := false
	var lock *machineLock
	err := poll(ctx, func(ctx context.Context) error {
		var holder string
		if lock, holder = tryLock(ctx, name, dir); lock != nil {
			return nil
		}
		if !told {
			told = true
			waiting(holder)
		}
		return fmt.Errorf("the cluster in %s has nodes, too", holder)
	})
	if err != nil {
		return nil, fmt.Errorf("wait for the machine: %w", err)
	}
	return lock, nil
}

// tryLock takes a lock, or returns where its holder is.
func tryLock(ctx context.Context, name, dir string) (lock *machineLock, holder string) {
	listener, err := net.Listen("unix", lockPrefix+name)
	if err != nil {
		return nil, lockHolder(ctx, name)
	}
	lock = &machineLock{listener: listener}
	lock.done.Go(func() { lock.answer(dir) })
	return lock, ""
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
	lock, err := lockMachine(ctx, nodesLock, dir, func(holder string) {
		fmt.Fprintf(log, "waiting for the cluster in %s, which has nodes, to stop\n", holder)
	})
	if err != nil {
		return nil, err
	}
	return lock.release, nil
}

// TryClaim takes something else of this machine that has a name, for the program in dir,
// and returns what gives it back. If another program that lives has it, release is nil, and
// holder is where that is. One that was killed a moment ago is waited for: it answers nothing.
func TryClaim(ctx context.Context, name, dir string) (release func() error, holder string, err error) {
	lock, holder, err := tryMachine(ctx, name, dir)
	if lock == nil {
		return nil, holder, err
	}
	return lock.release, "", err
}

func tryMachine(ctx context.Context, name, dir string) (lock *machineLock, holder string, err error) {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	err = poll(ctx, func(ctx context.Context) error {
		if lock, holder = tryLock(ctx, name, dir); lock == nil && holder == unknownHolder {
			return fmt.Errorf("who has %s%s does not answer", lockPrefix, name)
		}
		return nil
	})
	return lock, holder, err
}

// unknownHolder stands for one that does not say where its folder is.
const unknownHolder = "(unknown)"

func lockHolder(ctx context.Context, name string) string {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", lockPrefix+name)
	if err != nil {
		return unknownHolder
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok { // it may be frozen
		_ = conn.SetDeadline(deadline)
	}
	dir, err := io.ReadAll(conn)
	if err != nil || len(dir) == 0 {
		return unknownHolder
	}
	return string(dir)
}
