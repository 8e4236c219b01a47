package log

import (
	"errors"
	"fmt"
	"io"
	"syscall"
)

// Errors of Open.
var (
	// ErrLocked is returned if another process owns the folder.
	ErrLocked = errors.New("the cache folder is in use by another process")
	// ErrKey is returned if the file was written with another encryption key, if it is not encrypted but
	// a key is given, or the other way round.
	ErrKey = errors.New("wrong encryption key")
)

// Errors that Trouble, Flush and Run return while what is new is in memory only. It is tried again.
var (
	// ErrNotOpen is returned while the folder cannot be opened, together with the cause.
	ErrNotOpen = errors.New("the cache's file is not open")
	// ErrNoSpace is returned if the disk or the quota is full.
	ErrNoSpace = errors.New("no space left on the cache's disk")
	// ErrReadOnly is returned if the file system is read-only. Bodies are read from it nevertheless.
	ErrReadOnly = errors.New("the cache's disk is read-only")
)

// ErrNoBody is returned by Put for a body that is neither given nor held.
var ErrNoBody = errors.New("the body is neither given nor held")

// Errors of reads.
var (
	// ErrCorrupt is returned for a body that is damaged on disk, or that is not in the file although a
	// row needs it. Put it again with its bytes.
	ErrCorrupt = errors.New("damaged on disk")
	// ErrCut is returned by a Reader that was open for more than an hour after the file was replaced.
	ErrCut = errors.New("the answer was read too slowly: its file was replaced an hour ago")
)

// ErrFormat is a cause given to State.Lost: a hub of another version has written the file.
var ErrFormat = errors.New("the cache file was written by another version of the hub")

var errMissing = corrupt(errors.New("it is missing"))

func corrupt(err error) error { return fmt.Errorf("%w: %w", ErrCorrupt, err) }

// diskError makes err an ErrNoSpace if the disk is full, and an ErrReadOnly if it is read-only.
func diskError(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	case errors.Is(err, syscall.EROFS) && !errors.Is(err, ErrReadOnly):
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	}
	return err
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
