package convert

import "errors"

// Errors to branch on. Others are wire.ErrMalformed, wire.ErrTruncated or
// wire.ErrTooLarge: bytes that are not what they should be.
var (
	// ErrUnknownType is returned for types that this program does not know, custom
	// resources among them: 406, for a client that asks for another encoding.
	ErrUnknownType = errors.New("not a built-in type that this hub knows")

	// ErrNotAcceptable is returned when an Accept header allows neither protobuf nor
	// JSON: 406.
	ErrNotAcceptable = errors.New("neither protobuf nor JSON is accepted")

	// ErrMediaType is returned for bodies that are neither protobuf nor JSON: 415.
	ErrMediaType = errors.New("the body is neither protobuf nor JSON")
)
