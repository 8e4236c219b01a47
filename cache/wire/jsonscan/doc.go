// Package jsonscan checks JSON and finds values in it, without making Go values of them: the
// objects of a list are copied on as they came, and only a few strings are looked at.
//
// All that is given a slice and an index reads on from there, and returns where the value
// ends, or an error. Nothing is kept or changed; everything is safe for concurrent use, but
// Members and Span, which are for one goroutine.
//
// Its tests are those of package wire, which compare it with the decoders of clients.
package jsonscan

import "errors"

// Errors to branch on. What is returned wraps one of them and says what was found where.
var (
	// ErrTruncated is returned when bytes end before what they began: there may be more
	// to come.
	ErrTruncated = errors.New("cut short")

	// ErrMalformed is returned when bytes are not JSON, or what two readers could
	// understand differently.
	ErrMalformed = errors.New("malformed")

	// ErrTooLarge is returned when the nesting exceeds its limit.
	ErrTooLarge = errors.New("too large")
)
