package wire

import (
	"errors"

	"github.com/edgehub-io/edgehub/cache/wire/jsonscan"
)

// Errors to branch on. What is returned wraps one of them and says what was found where.
var (
	// ErrTruncated is returned when bytes end before what they began.
	ErrTruncated = jsonscan.ErrTruncated

	// ErrMalformed is returned when bytes are not what their encoding allows, or
	// what two readers could understand differently.
	ErrMalformed = jsonscan.ErrMalformed

	// ErrTooLarge is returned when an item, a frame or the nesting exceeds its limit.
	ErrTooLarge = jsonscan.ErrTooLarge

	// ErrNotList is returned when a body is sound, but not a list that could be put
	// together again from its items.
	ErrNotList = errors.New("not a list of objects")

	// ErrEncoding is returned for an encoding that is neither protobuf nor JSON.
	ErrEncoding = errors.New("neither protobuf nor JSON")
)
