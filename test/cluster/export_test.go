package cluster

import "context"

// LockMachine waits until no cluster has nodes, and keeps others from it until
// release is called.
func LockMachine(ctx context.Context) (release func() error, err error) {
	lock, err := lockMachine(ctx, nodesLock, "(a test that looks at the machine)", func(string) {})
	if err != nil {
		return nil, err
	}
	return lock.release, nil
}
