package proxy

import (
	"context"
	"io"
)

// watchBody is the body of a watch. Once the hub drains, it always ends cleanly.
type watchBody struct {
	io.ReadCloser
	draining context.Context
}

func (d *watchBody) Read(p []byte) (int, error) {
	n, err := d.ReadCloser.Read(p)
	if err != nil && d.draining.Err() != nil {
		err = io.EOF
	}
	return n, err
}
