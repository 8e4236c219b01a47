package store

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lockPoll is how often a lock that another process holds is tried.
const lockPoll = 50 * time.Millisecond

// lock makes this process the owner of the folder until unlock is called. It
// is not bbolt's lock on the file: files are moved before bbolt opens one.
func (d folder) lock(timeout time.Duration) (unlock func(), err error) {
	f, err := os.OpenFile(d.file(fileLock), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(timeout); ; time.Sleep(lockPoll) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return func() { f.Close() }, nil
		case !errors.Is(err, syscall.EWOULDBLOCK):
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", d, err)
		case time.Now().After(deadline):
			f.Close()
			return nil, fmt.Errorf("%w: %s", ErrLocked, d)
		}
	}
}
