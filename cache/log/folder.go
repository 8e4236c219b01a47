package log

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// folder contains the log's files.
type folder string

const (
	fileLog     = "cache.log"
	fileNewLog  = "cache.new.log"     // being written
	fileDamaged = "cache.damaged.log" // the last one that was set aside, for a person to look at
	fileLock    = "lock"
)

// keepDamaged is how long a log that was set aside is left for a person to look at, by the machine's clock.
const keepDamaged = 7 * 24 * time.Hour

func (d folder) file(name string) string { return filepath.Join(string(d), name) }

// prepare creates the folder, which only its owner may enter.
func (d folder) prepare() error {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return err
	}
	if err := os.Chmod(string(d), 0o700); err != nil { //nolint:gosec // a folder needs x
		return err
	}
	for _, name := range []string{fileLog, fileDamaged} {
		if err := os.Chmod(d.file(name), 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// open opens the log.
func (d folder) open(readOnly bool) (*os.File, error) {
	if readOnly {
		return os.Open(d.file(fileLog))
	}
	return os.OpenFile(d.file(fileLog), os.O_RDWR, 0)
}

func (d folder) has(name string) bool {
	_, err := os.Stat(d.file(name))
	return err == nil
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

// hasSpace returns an ErrNoSpace if a file of size bytes does not fit on the disk: an attempt would fill it, for all
// programs of the machine.
func (d folder) hasSpace(size int64) error {
	var s syscall.Statfs_t
	if err := syscall.Statfs(string(d), &s); err == nil && s.Bavail*uint64(s.Bsize) < uint64(size) {
		return fmt.Errorf("%w: a new file needs %d MiB", ErrNoSpace, size>>20)
	}
	return nil
}

// lockTimeout is Options.LockTimeout by default.
const lockTimeout = 5 * time.Second

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

// discard erases a log that was set aside, at once or when it is older than keepDamaged.
func (d folder) discard(atOnce bool) error {
	if info, err := os.Stat(d.file(fileDamaged)); err == nil && (atOnce || time.Since(info.ModTime()) >= keepDamaged) {
		return d.erase(fileDamaged)
	}
	return nil
}

// overwrite overwrites a file that has no name any more with zeros, and closes it: the file system
// frees its blocks, and does not overwrite them.
func overwrite(f *os.File) error {
	info, err := f.Stat()
	zeros := make([]byte, 64<<10)
	for at := int64(0); err == nil && at < info.Size(); at += int64(len(zeros)) {
		_, err = f.WriteAt(zeros[:min(int64(len(zeros)), info.Size()-at)], at)
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("overwrite what was removed: %w", err)
	}
	return nil
}

// Erase overwrites and removes all files in the folder of a log. Its errors are ErrLocked, and those of a folder that cannot be
// written.
func Erase(path string) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	d := folder(path)
	unlock, err := d.lock(lockTimeout)
	if err != nil {
		return fmt.Errorf("erase cache: %w", err)
	}
	defer unlock()
	entries, err := os.ReadDir(path)
	for _, e := range entries {
		if e.Type().IsRegular() && e.Name() != fileLock {
			err = errors.Join(err, d.erase(e.Name()))
		}
	}
	if err != nil {
		return fmt.Errorf("erase cache: %w", err)
	}
	return nil
}
