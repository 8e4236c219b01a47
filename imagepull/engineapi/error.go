package engineapi

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Reason is a kind of failure.
type Reason string

// A comment explains those whose names do not.
const (
	InvalidImageName   Reason = "InvalidImageName"
	NotFound           Reason = "ImageNotFound"
	Unauthorized       Reason = "Unauthorized"
	WrongPlatform      Reason = "NoImageForPlatform"
	NoSpace            Reason = "InsufficientSpace"
	Unreachable        Reason = "RegistryUnreachable"
	Untrusted          Reason = "CertificateNotTrusted"
	RegistryBusy       Reason = "RegistryBusy" // it answers, with 429 or 5xx
	Corrupt            Reason = "ContentCorrupt"
	Gone               Reason = "ImageGone" // of Keep only
	RuntimeUnavailable Reason = "ContainerdUnavailable"
	Other              Reason = "PullFailed"
)

// Error is why a pull failed. Its text is one line of bounded length and without
// control characters: which image, what happened, and what to do. It never contains a
// credential. It wraps no error of a library, so that nothing else can be got out of it.
type Error struct {
	Reason Reason
	// Permanent is true if trying again cannot help: InvalidImageName only.
	Permanent bool
	// RetryAfter is how long the registry asks to be left alone; 0 where it does not.
	RetryAfter time.Duration
	text       string
	cause      error
	details    []detail
}

// detail is a part of an error's text about a Secret, which only those may read who may
// know of that Secret. An empty namespace is for everybody.
type detail struct{ namespace, text string }

// errorLimit bounds the text of an Error, in bytes. An Event's message may have 1024.
const errorLimit = 1000

// NewError is an Error with the text of err, which may have parts that come from
// elsewhere: this is where what could harm a reader is taken out of them.
func NewError(r Reason, err error) *Error {
	return &Error{Reason: r, Permanent: r == InvalidImageName, text: line(err.Error(), errorLimit), cause: err}
}

// Errorf is NewError with a text like that of fmt.Errorf.
func Errorf(r Reason, format string, values ...any) *Error {
	return NewError(r, fmt.Errorf(format, values...))
}

// Error returns the whole text, which may be about Secrets of several namespaces: it is for
// the node's administrators. Use For for what pods or their owners may read.
func (e *Error) Error() string {
	return e.textWith(func(detail) bool { return true })
}

// For is the text for those who may know of Secrets of this namespace, and of no other.
func (e *Error) For(namespace string) string {
	return e.textWith(func(d detail) bool { return d.namespace == "" || d.namespace == namespace })
}

func (e *Error) textWith(which func(detail) bool) string {
	text := e.text
	for _, d := range e.details {
		if which(d) {
			text += "; " + d.text
		}
	}
	return line(text, errorLimit)
}

func (e *Error) Unwrap() error { return e.cause }

// Explain returns an Error whose text also has err, as a possible cause of the failure, for
// those who may know of Secrets of the namespace; an empty one is for everybody. A nil err
// adds nothing.
func (e *Error) Explain(namespace string, err error) *Error {
	if err == nil {
		return e
	}
	more := *e
	more.details = append(slices.Clip(e.details), detail{namespace, line(err.Error(), quoteLimit)})
	return &more
}

// ForImage returns an Error whose text begins with the image's name.
func (e *Error) ForImage(name string) *Error {
	more := *e
	more.text = line("image "+name+": "+e.text, errorLimit)
	return &more
}

// AsError returns err as an *Error, of reason Other if it is none; nil for nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return NewError(Other, err)
}
