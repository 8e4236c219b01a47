package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// folder contains the store's files.
type folder string

const (
	fileLog      = "cache.log"
	fileIndex    = "cache.index"
	fileNewLog   = "cache.new.log" // being written
	fileNewIndex = "cache.new.index"
	fileDamaged  = "cache.damaged.log" // the last one that was moved aside, for a person to look at
	fileLock     = "lock"
)

// bboltFiles are those of earlier versions: the first has what they cached, the last says how they ended.
var bboltFiles = []string{"cache.db", "cache.snapshot.db", "cache.damaged.db", "state"}

func (d folder) file(name string) string { return filepath.Join(string(d), name) }

// prepare creates the folder, which only its owner may enter.
func (d folder) prepare() error {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return err
	}
	if err := os.Chmod(string(d), 0o700); err != nil { //nolint:gosec // a folder needs x
		return err
	}
	for _, name := range []string{fileLog, fileIndex, fileDamaged} {
		if err := os.Chmod(d.file(name), 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// open opens the log or the index. The log is created if there is none.
func (d folder) open(name string, readOnly bool) (*os.File, error) {
	flags := os.O_RDWR
	switch {
	case readOnly:
		flags = os.O_RDONLY
	case name == fileLog:
		flags |= os.O_CREATE
	}
	return os.OpenFile(d.file(name), flags, 0o600)
}

// create creates a file that begins with a header.
func (d folder) create(name string, header []byte) (*os.File, error) {
	f, err := os.OpenFile(d.file(name), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := f.WriteAt(header, 0); err != nil {
		return nil, errors.Join(err, f.Close(), d.remove(name))
	}
	return f, nil
}

// remove removes a file if it exists.
func (d folder) remove(name string) error {
	if err := os.Remove(d.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// erase removes a file and overwrites it.
func (d folder) erase(name string) error {
	f, err := os.OpenFile(d.file(name), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(d.remove(name), d.sync(), overwrite(f))
}

func (d folder) rename(from, to string) error { return os.Rename(d.file(from), d.file(to)) }

func (d folder) sync() error {
	f, err := os.Open(string(d))
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// lockPoll is how often lock tries to get a lock that another process holds.
const lockPoll = 50 * time.Millisecond

// lock makes this process the owner of the folder until unlock is called.
func (d folder) lock(timeout time.Duration) (unlock func(), err error) {
	f, err := os.OpenFile(d.file(fileLock), os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, syscall.EROFS) {
		if f, err = os.Open(d.file(fileLock)); errors.Is(err, fs.ErrNotExist) {
			return func() {}, nil // nobody can write there
		}
	}
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
