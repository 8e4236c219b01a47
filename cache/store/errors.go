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
	// ErrLocked is returned if another process owns the folder.
	ErrLocked = errors.New("the cache folder is in use by another process")
	// ErrKey is returned if the file was written with another encryption key, if it is not
	// encrypted but a key is given, or the other way round.
	ErrKey = errors.New("wrong encryption key")
	// ErrFormat is the Cause of a Recovery if a hub of another version has written the file. It
	// is never returned.
	ErrFormat = errors.New("the cache file was written by another version of the hub")
)

// Errors of Commit. After each of them nothing has changed.
var (
	// ErrNoSpace is returned if the disk or the quota is full. When there is space again, Commit
	// works again, without another Open.
	ErrNoSpace = errors.New("no space left on the cache's disk")
	// ErrReadOnly is returned if the file system is read-only. When it is not any more, Commit works
	// again, without another Open.
	ErrReadOnly = errors.New("the cache's disk is read-only")
	// ErrConflict is returned for a change of a view that is at another version than the change
	// starts from, is stale, or does not exist.
	ErrConflict = errors.New("the view on disk is not the one that this change starts from")
	// ErrNoObject is returned for a member without bytes, whose object is not stored.
	ErrNoObject = errors.New("the object is neither given nor stored")
	// ErrInvalid is returned for a name that is empty or too long, or contains a NUL.
	ErrInvalid = errors.New("invalid change")
)

// Errors of reads, and of Commit, too.
var (
	// ErrNotFound is returned for a view or key that does not exist.
	ErrNotFound = errors.New("not in the store")
	// ErrChanged is returned by Reader.Read if an object was replaced before it was read. The
	// objects read so far are of one version: start again.
	ErrChanged = errors.New("the view has changed while it was read")
	// ErrCorrupt is returned for a damaged record. The error is an *Error that names it.
	ErrCorrupt = seal.ErrCorrupt
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("the store is closed")
)

// Error names the record that an error is about. Fields that do not apply are empty.
type Error struct {
	View  ID
	Name  string // of the object, "namespace/name", or the key in Table
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

// ofView returns err as an *Error of a view, and of one object if name is set, unless it already
// is one of that view.
func ofView(id ID, name string, err error) error {
	known, ok := errors.AsType[*Error](err)
	if err == nil || ok && known.View == id {
		return err
	}
	if ok && known.View == (ID{}) && known.Table == "" {
		if name == "" {
			name = known.Name
		}
		err = known.Err
	}
	return &Error{View: id, Name: name, Err: err}
}

// spaceError makes err an ErrNoSpace if the disk is full.
func spaceError(err error) error {
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		if errors.Is(err, full) {
			return fmt.Errorf("%w: %w", ErrNoSpace, err)
		}
	}
	return err
}

func corrupt(err error) error { return fmt.Errorf("%w: %w", ErrCorrupt, err) }
