package engine

import (
	"fmt"
	"time"
)

// Reason is a kind of failure.
type Reason string

// What each means for those who wait stands with it only where its name does not say.
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

// Error is why a pull failed. Its text is one line that says which image, what
// happened, and what to do; it never has a credential in it. It wraps no error of a
// library, so that nothing else can be got out of it.
type Error struct {
	Reason Reason
	// Permanent says that trying again cannot help: InvalidImageName only.
	Permanent bool
	// RetryAfter is how long the registry asks to be left alone; 0 where it does not.
	RetryAfter time.Duration
	err        error
}

// NewError is an Error with the text of err.
func NewError(r Reason, err error) *Error {
	return &Error{Reason: r, Permanent: r == InvalidImageName, err: err}
}

func errorf(r Reason, format string, values ...any) *Error {
	return NewError(r, fmt.Errorf(format, values...))
}

func (e *Error) Error() string { return e.err.Error() }

func (e *Error) Unwrap() error { return e.err }

// Explain returns an Error that also says what else may have led to the failure. Nil
// adds nothing.
func (e *Error) Explain(err error) *Error {
	if err == nil {
		return e
	}
	more := *e
	more.err = fmt.Errorf("%w; %w", e.err, err)
	return &more
}
