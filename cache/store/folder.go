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
	fileMain     = "cache.db"
	fileSnapshot = "cache.snapshot.db"
	fileDamaged  = "cache.damaged.db" // the last one that was moved aside, for a person to look at
	fileNew      = "cache.new.db"     // being written
	fileState    = "state"
	fileLock     = "lock"
)

func (d folder) file(name string) string { return filepath.Join(string(d), name) }

// prepare creates the folder, which only its owner may enter.
func (d folder) prepare() error {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return err
	}
	if err := os.Chmod(string(d), 0o700); err != nil { //nolint:gosec // a folder needs x
		return err
	}
	for _, name := range []string{fileMain, fileSnapshot, fileDamaged} {
		if err := os.Chmod(d.file(name), 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return d.remove(fileNew)
}

// remove removes a file if it exists.
func (d folder) remove(name string) error {
	if err := os.Remove(d.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// replace durably replaces a file by another one.
func (d folder) replace(from, to string) error {
	if err := os.Rename(d.file(from), d.file(to)); err != nil {
		return err
	}
	return d.sync()
}

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

// lock makes this process the owner of the folder until unlock is called. bbolt's lock on the
// file is not enough: files are moved before bbolt opens one.
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

// state records for the next Open how the last owner of the folder ended. Its file is not synced: it
// is for crashes of the process, which do not affect the kernel's page cache.
type state struct {
	phase phase
	times int // how many owners in a row ended in this phase
}

type phase string

const (
	phaseClosed phase = "" // there is no state file: the store was closed
	// phaseOpening is the sentinel: the file is being opened. If the next Open finds it,
	// opening may have ended the process.
	phaseOpening phase = "opening"
	phaseOpen    phase = "open"
	phaseDamaged phase = "damaged"
	phaseUnknown phase = "unknown" // the state file cannot be parsed
)

func (d folder) state() (state, error) {
	text, err := os.ReadFile(d.file(fileState))
	if errors.Is(err, fs.ErrNotExist) {
		return state{}, nil
	}
	if err != nil {
		return state{}, err
	}
	var s state
	if _, err := fmt.Sscanf(string(text), "%s %d\n", &s.phase, &s.times); err == nil {
		switch s.phase {
		case phaseOpening, phaseOpen, phaseDamaged:
			return s, nil
		}
	}
	return state{phase: phaseUnknown}, nil // truncated by a crash
}

func (d folder) setState(s state) error {
	if s.phase == phaseClosed {
		return d.remove(fileState)
	}
	return os.WriteFile(d.file(fileState), fmt.Appendf(nil, "%s %d\n", s.phase, s.times), 0o600)
}

// checkLevel is how much of a file Open reads before it is used.
type checkLevel int

const (
	quickCheck checkLevel = iota // the headers of views, and inner pages
	fullCheck                    // all of it
	noCheck                      // nothing: it is moved aside
)

// fullAfter is the number of crashes in a row after which the whole file is read: damage that
// ends the process whenever it is read is found this way.
const fullAfter = 3

// next returns how to check the file after an owner that ended in s, and the state to write
// before the file is opened.
func (s state) next() (checkLevel, state) {
	switch s.phase {
	case phaseClosed:
		return quickCheck, state{phaseOpening, 1}
	case phaseDamaged:
		return noCheck, state{phaseOpening, 1}
	case phaseOpening:
		// Once, a kill at this moment is more likely than damage that checkPages does not
		// find. Twice in a row, it is not.
		if s.times >= 2 {
			return noCheck, state{phaseOpening, 1}
		}
		return fullCheck, state{phaseOpening, s.times + 1}
	case phaseOpen:
		if s.times < fullAfter {
			return quickCheck, state{phaseOpening, 1}
		}
	}
	return fullCheck, state{phaseOpening, 1}
}

// opened returns the state while the store is open, after an owner that ended in s.
func (s state) opened(level checkLevel) state {
	if s.phase == phaseOpen && level == quickCheck {
		return state{phaseOpen, s.times + 1}
	}
	return state{phaseOpen, 1}
}
