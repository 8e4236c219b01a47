package store

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/edgehub-io/edgehub/cache/store/seal"
)

// Errors of Open.
var (
	// ErrLocked is returned when another process owns the folder.
	ErrLocked = errors.New("the cache folder is in use by another process")
	// ErrKey is returned when the file was written with another encryption
	// key, or with none, or when it needs one. Nothing has been changed.
	ErrKey = errors.New("wrong encryption key")
	// ErrFormat is never returned: it is the Cause of a Recovery where a hub of
	// another version has written the file.
	ErrFormat = errors.New("the cache file was written by another version of the hub")
)

// Errors of Commit. With each of them the state before stays.
var (
	// ErrNoSpace is returned when the disk or the quota is full. Commit works
	// again, without another Open, when there is space.
	ErrNoSpace = errors.New("no space left on the cache's disk")
	// ErrConflict is returned for a change to a view that is not at the
	// version which the change starts from, is stale, or is not there.
	ErrConflict = errors.New("the view on disk is not the one that this change starts from")
	// ErrNoObject is returned for a member without bytes, whose object is not
	// stored either.
	ErrNoObject = errors.New("neither given nor stored")
	// ErrInvalid is returned for an empty or overlong name, or one with a NUL.
	ErrInvalid = errors.New("invalid change")
)

// Errors of reads, and of Commit too.
var (
	// ErrNotFound is returned where there is no such view or key.
	ErrNotFound = errors.New("not in the store")
	// ErrChanged is returned by Reader.Read when an object was replaced before it
	// was read: what was handed out so far is one version's beginning. Start
	// again.
	ErrChanged = errors.New("the view has changed while it was read")
	// ErrCorrupt is returned for a damaged record. The error is an *Error that
	// says which.
	ErrCorrupt = seal.ErrCorrupt
	// ErrDamaged is returned when the file's pages are damaged. It is
	// ErrCorrupt too. Close the store and open it again.
	ErrDamaged = fmt.Errorf("%w: the pages of the cache file", ErrCorrupt)
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("the store is closed")
)

// Error says which record an error is about. What does not apply is empty.
type Error struct {
	View ID     // the view; the zero ID where none is known
	Name string // the object, "namespace/name", or the key in Table
	// Table is the one that Name is a key of; "" for objects and views.
	Table string
	Err   error
}

func (e *Error) Error() string {
	var where []string
	if e.View != (ID{}) {
		where = append(where, "view "+e.View.String())
	}
	switch {
	case e.Table != "":
		where = append(where, fmt.Sprintf("table %s, key %q", e.Table, e.Name))
	case e.Name != "":
		where = append(where, "object "+e.Name)
	}
	return strings.Join(append(where, e.Err.Error()), ": ")
}

func (e *Error) Unwrap() error { return e.Err }

// ofView says that err is about a view, and about one object if name is set. An
// error that says so already is left alone.
func ofView(id ID, name string, err error) error {
	var known *Error
	if err == nil || errors.As(err, &known) && known.View == id {
		return err
	}
	if known != nil && known.View == (ID{}) && known.Table == "" {
		if name == "" {
			name = known.Name
		}
		err = known.Err
	}
	return &Error{View: id, Name: name, Err: err}
}

// spaceError marks err as ErrNoSpace if that is what it is. bbolt formats the
// error of a file that cannot grow with %s, so its text must do.
func spaceError(err error) error {
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		if errors.Is(err, full) || err != nil && strings.Contains(err.Error(), full.Error()) {
			return fmt.Errorf("%w: %w", ErrNoSpace, err)
		}
	}
	return err
}

func corrupt(err error) error { return fmt.Errorf("%w: %w", ErrCorrupt, err) }
