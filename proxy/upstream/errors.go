package upstream

import (
	"errors"
	"io"
	"net"
	"slices"
	"strings"
)

// dialError is a failure to get a connection: nothing was sent on it.
type dialError struct{ err error }

func asDialError(err error) error {
	if err == nil || undelivered(err) {
		return err
	}
	return &dialError{err}
}

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// undelivered reports whether err shows that no byte of the request was sent.
func undelivered(err error) bool {
	var dial *dialError
	return errors.As(err, &dial)
}

// Error texts of net/http for which it exports no error.
const (
	lostHTTP2      = "http2: client connection lost"
	closedHTTP2    = "http2: client connection force closed" // another request could not be written to it
	goneAwayHTTP2  = "http2: server sent GOAWAY"
	unretriedHTTP2 = "http2: Transport: cannot retry err"
	unbegunHTTP2   = "http2: client conn could not be established" // a new one broke before the request was begun
)

// connectionLost reports whether the connection broke, as opposed to a request or stream that
// was refused on a good one.
func connectionLost(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		slices.ContainsFunc([]string{lostHTTP2, closedHTTP2, goneAwayHTTP2}, func(said string) bool { return strings.Contains(err.Error(), said) })
}

// unbegun reports that the connection broke before anything of the request was sent.
func unbegun(err error) bool { return strings.Contains(err.Error(), unbegunHTTP2) }

// bodyLost reports that the apiserver has not begun to execute the request, which could be sent
// again if its body were still available.
func bodyLost(err error) bool { return strings.Contains(err.Error(), unretriedHTTP2) }

// UnreachableError is returned when no apiserver answered.
type UnreachableError struct {
	// Attempts has an error for each apiserver that was tried, or is known to be
	// down.
	Attempts []error
	// Delivered is true if an apiserver may have executed the request nevertheless: the
	// connection broke after the request was sent.
	Delivered bool
}

func (e *UnreachableError) Error() string {
	words := make([]string, len(e.Attempts))
	for i, err := range e.Attempts {
		words[i] = err.Error()
	}
	return strings.Join(words, "; ")
}

// Refused reports whether an apiserver was reached, and refused the node.
func (e *UnreachableError) Refused() bool {
	var refused *RefusedError
	var missing *MissingError
	return errors.As(error(e), &refused) || errors.As(error(e), &missing)
}

// Unwrap returns the error of each attempt.
func (e *UnreachableError) Unwrap() []error { return e.Attempts }
