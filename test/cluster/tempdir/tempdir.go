// Package tempdir makes folders of which one can see whether their process lives: what a
// test that was killed has left is found by its folder, and what one that runs has is not
// touched.
//
// A folder is os.TempDir()/edgehub-NAME-*, and its process holds a lock on a file in it
// until it ends, however that happens.
package tempdir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Prefix begins the name of each folder.
const Prefix = "edgehub-"

// lockName is the file in a folder that its process holds the lock on. It has the
// process's ID.
const lockName = ".owner"

// Dir is a folder of this process's, and for one goroutine.
type Dir struct {
	// Path is absolute if os.TempDir() is.
	Path string
	lock *FileLock
}

// Make makes an empty folder for what name says. It is this process's until Remove.
func Make(name string) (*Dir, error) {
	path, err := os.MkdirTemp("", Prefix+name+"-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	return hold(path)
}

// MakeAs is Make for a folder whose path is the same each time: os.TempDir()/edgehub-NAME. The error
// is fs.ErrExist if it is there, whoever has made it.
func MakeAs(name string) (*Dir, error) {
	path := filepath.Join(os.TempDir(), Prefix+name)
	if err := os.Mkdir(path, 0o700); err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	return hold(path)
}

// hold takes an empty folder that this process has made.
func hold(path string) (*Dir, error) {
	lock, err := Lock(filepath.Join(path, lockName))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a folder: %w", err), os.RemoveAll(path))
	}
	return &Dir{path, lock}, nil
}

// Remove removes it with all that is in it.
func (d *Dir) Remove() error {
	return errors.Join(os.RemoveAll(d.Path), d.Release())
}

// Release gives the folder up, and leaves it where it is.
func (d *Dir) Release() error { return d.lock.Close() }

// Abandoned are the folders below os.TempDir() whose process has ended without Remove.
// They are this process's now.
func Abandoned() ([]*Dir, error) {
	return Take(filepath.Join(os.TempDir(), Prefix+"*", lockName))
}

// Take takes the folders of this process's user that have a file of this pattern on which nobody
// holds a lock. What others have named so is theirs, also for root.
func Take(pattern string) ([]*Dir, error) {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	var all []*Dir
	for _, file := range files {
		if !own(filepath.Dir(file)) {
			continue
		}
		if lock, err := Lock(file); err == nil { // else its process lives, or it has gone
			all = append(all, &Dir{filepath.Dir(file), lock})
		}
	}
	return all, nil
}

// own reports whether a path is a folder, and no link, of this process's user.
func own(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

// ErrLocked is returned for a file that another has locked.
var ErrLocked = errors.New("another process has it")

// FileLock is a lock on a file. It is held until Close, or until the process ends: also if
// nothing refers to it any more, when an os.File would be closed.
type FileLock struct{ fd int }

// Lock locks a file, and writes this process's ID into it. It makes the file if need be.
func Lock(file string) (*FileLock, error) {
	fd, err := syscall.Open(file, syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", file, err)
	}
	lock := &FileLock{fd}
	if err := syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", file, ErrLocked), lock.Close())
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
		return nil, errors.Join(fmt.Errorf("lock: %w", err), lock.Close())
	}
	return lock, nil
}

// Close gives the lock up.
func (l *FileLock) Close() error { return syscall.Close(l.fd) }
