package upstream

import (
	"errors"
	"io"
	"net"
	"strings"
	"time"
)

// dialError is a failure to get a connection: nothing was sent on it.
type dialError struct{ err error }

func asDialError(err error) error {
	if is[*dialError](err) {
		return err
	}
	return &dialError{err}
}

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// outcome is what the error of an attempt shows about the request: see RoundTrip for what follows.
type outcome int

const (
	// aborted: the apiserver, or its client, aborted this request only.
	aborted outcome = iota
	// unavailable: nothing was sent, or the apiserver does not serve the node.
	unavailable
	// unauthorized: it was not executed, because of the node's credentials.
	unauthorized
	// bodyLost: it was not executed, but its body is no longer available.
	bodyLost
	// unbegun: the connection broke before anything of it was sent.
	unbegun
	// ambiguous: the connection broke, and the request may have been executed.
	ambiguous
)

// Error texts of net/http for which it exports no error.
const (
	lostHTTP2      = "http2: client connection lost"
	closedHTTP2    = "http2: client connection force closed" // another request could not be written to it
	goneAwayHTTP2  = "http2: server sent GOAWAY"
	unretriedHTTP2 = "http2: Transport: cannot retry err"
	unbegunHTTP2   = "http2: client conn could not be established" // a new one broke before the request was begun
)

// classify returns the outcome of an attempt that failed with err. The order matters: an error
// of net/http may contain the text of another one, and any of them may wrap a net.Error.
func classify(err error) outcome {
	text := err.Error()
	says := func(part string) bool { return strings.Contains(text, part) }
	switch {
	case errors.Is(err, ErrClientBody):
		return aborted
	case is[*dialError](err), is[*notServingError](err):
		return unavailable
	case is[*RefusedError](err), errors.Is(err, errCredentialsReplaced):
		return unauthorized
	case says(unretriedHTTP2):
		return bodyLost
	case says(unbegunHTTP2):
		return unbegun
	case is[net.Error](err), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		says(lostHTTP2), says(closedHTTP2), says(goneAwayHTTP2):
		return ambiguous
	}
	return aborted
}

// is reports whether err, or what it wraps, is an E.
func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// UnreachableError is returned when no apiserver answered.
type UnreachableError struct {
	// Attempts has an error for each apiserver that was tried, or is known to be
	// down.
	Attempts []error
	// Delivered is true if an apiserver may have executed the request nevertheless: the
	// connection broke after the request was sent.
	Delivered bool
	// Since is when the last of the apiservers was lost for this caller; zero: not all of them are known to be.
	Since time.Time
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
	return is[*RefusedError](error(e)) || is[*MissingError](error(e))
}

// Unwrap returns the error of each attempt.
func (e *UnreachableError) Unwrap() []error { return e.Attempts }
