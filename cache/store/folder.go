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

// folder is where the store's files are.
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

// replace makes one file take the place of another, for good.
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

// prepare makes the folder, and only its owner may look in.
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
	if err := os.Remove(d.file(fileNew)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// quarantine moves the file aside. One such file is kept.
func (d folder) quarantine() error {
	err := d.replace(fileMain, fileDamaged)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

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

// A small file tells the next Open how the last owner of the folder ended. It
// is there for crashes of the process, which leave the kernel's caches whole,
// so it is not synced.

type phase string

const (
	// phaseClosed is that of no file: the store was closed.
	phaseClosed phase = ""
	// phaseOpening is the sentinel: while it stands, the file is being opened.
	// If it still stands at the next Open, opening may have been what ended
	// the process.
	phaseOpening phase = "opening"
	phaseOpen    phase = "open"
	phaseDamaged phase = "damaged"
	// phaseUnknown is that of a file which cannot be read as a state.
	phaseUnknown phase = "unknown"
)

// state is the phase, and how many owners in a row have ended in it.
type state struct {
	phase phase
	times int
}

func (d folder) state() (state, error) {
	text, err := os.ReadFile(d.file(fileState))
	if errors.Is(err, fs.ErrNotExist) {
		return state{}, nil
	}
	if err != nil {
		return state{}, err
	}
	var s state
	if _, err := fmt.Sscanf(string(text), "%s %d\n", &s.phase, &s.times); err != nil {
		return state{phase: phaseUnknown}, nil //nolint:nilerr // cut short by a crash: that much is known
	}
	switch s.phase {
	case phaseOpening, phaseOpen, phaseDamaged:
		return s, nil
	}
	return state{phase: phaseUnknown}, nil
}

func (d folder) setState(s state) error {
	if s.phase == phaseClosed {
		if err := os.Remove(d.file(fileState)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	return os.WriteFile(d.file(fileState), fmt.Appendf(nil, "%s %d\n", s.phase, s.times), 0o600)
}

// checkLevel is how much of a file Open reads before it is used.
type checkLevel int

const (
	quickCheck checkLevel = iota // look at its headers and inner pages
	fullCheck                    // read all of it first
	noCheck                      // move it aside unread
)

// fullAfter is after how many crashes in a row the whole file is read before it
// is used: damage that ends the process each time it is met is found so.
const fullAfter = 3

// next says how to treat the file after an owner that ended in s, and the
// state to write before the file is touched.
func (s state) next() (checkLevel, state) {
	switch s.phase {
	case phaseClosed:
		return quickCheck, state{phaseOpening, 1}
	case phaseDamaged:
		return noCheck, state{phaseOpening, 1}
	case phaseOpening:
		// A kill at the wrong moment is likelier than damage that the careful
		// reading of checkPages does not see. Twice in a row it is not.
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

// opened is the state while the store is open, after an owner that ended in s.
func (s state) opened(level checkLevel) state {
	if s.phase == phaseOpen && level == quickCheck {
		return state{phaseOpen, s.times + 1}
	}
	return state{phaseOpen, 1}
}
