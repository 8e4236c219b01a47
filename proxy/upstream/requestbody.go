package upstream

import (
	"errors"
	"fmt"
	"io"
)

// ErrClientBody marks a failure to read a request's body from its client.
var ErrClientBody = errors.New("the client broke off its request body")

// requestBody is a request body on its way to one apiserver. A transport closes
// the body of a request that it could not send; the client's stays open for the
// next apiserver.
type requestBody struct{ io.Reader }

func (b requestBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: %w", ErrClientBody, err)
	}
	return n, err
}

func (requestBody) Close() error { return nil }
