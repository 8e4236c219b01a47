package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

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
