package engineapi

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Reason is the kind of a failure.
type Reason string

// The kinds of failures.
const (
	InvalidImageName   Reason = "InvalidImageName"
	NotFound           Reason = "ImageNotFound"
	Unauthorized       Reason = "Unauthorized"
	WrongPlatform      Reason = "NoImageForPlatform"
	NoSpace            Reason = "InsufficientSpace"
	Unreachable        Reason = "RegistryUnreachable"
	Untrusted          Reason = "CertificateNotTrusted"
	RegistryBusy       Reason = "RegistryBusy" // it answers with 429 or 5xx
	Corrupt            Reason = "ContentCorrupt"
	Gone               Reason = "ImageGone" // of Find and Keep only
	RuntimeUnavailable Reason = "ContainerdUnavailable"
	Settings           Reason = "ContainerdSettings" // how CRI pulls is not known, or not supported
	Other              Reason = "PullFailed"
)

// Error is the failure of a pull. Its text is one line of bounded length without control characters:
// which image, what happened, and what to do. It never contains a credential.
type Error struct {
	Reason Reason
	// Permanent means that a retry cannot help. It is set only for InvalidImageName.
	Permanent bool
	// RetryAfter is how long the registry asks the client to wait, or 0.
	RetryAfter time.Duration
	text       string
	cause      error
	details    []detail
}

// detail is a part of an error's text about a Secret, only for readers who may know of the Secret. An
// empty namespace is for all readers.
type detail struct{ namespace, text string }

// errorLimit bounds the text of an Error, in bytes. An Event's message may have 1024.
const errorLimit = 1000

// NewError returns an Error with the text of err, from which it removes control characters.
func NewError(r Reason, err error) *Error {
	return &Error{Reason: r, Permanent: r == InvalidImageName, text: line(err.Error(), errorLimit), cause: err}
}

// Errorf is NewError with a format.
func Errorf(r Reason, format string, values ...any) *Error {
	return NewError(r, fmt.Errorf(format, values...))
}

// Error returns the whole text, for the node's administrators: it may be about Secrets of several
// namespaces. For returns the text for others.
func (e *Error) Error() string {
	return e.textWith(func(detail) bool { return true })
}

// For returns the text for readers who may know only of Secrets of this namespace.
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

// Explain returns an Error with err as a possible cause, for readers who may know of Secrets of the
// namespace, or for all readers if it is empty. A nil err adds nothing.
func (e *Error) Explain(namespace string, err error) *Error {
	if err == nil {
		return e
	}
	more := *e
	more.details = append(slices.Clip(e.details), detail{namespace, line(err.Error(), quoteLimit)})
	return &more
}

// ForImage returns an Error that names the image.
func (e *Error) ForImage(name string) *Error {
	more := *e
	more.text = line("image "+name+": "+e.text, errorLimit)
	return &more
}

// AsError returns err as an *Error, with the reason Other if it is another error, or nil for nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return NewError(Other, err)
}
