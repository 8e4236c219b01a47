package tee

import (
	"errors"
	"io"
	"net/http"
)

// Upgraded replaces the connection of an answer 101 by one that calls seen with all that comes for the client,
// before the client gets it.
func Upgraded(res *http.Response, seen func([]byte)) {
	if conn, ok := res.Body.(io.ReadWriteCloser); ok {
		res.Body = &upgraded{conn, seen}
	}
}

type upgraded struct {
	io.ReadWriteCloser
	seen func([]byte)
}

func (u *upgraded) Read(p []byte) (int, error) {
	n, err := u.ReadWriteCloser.Read(p)
	if n > 0 {
		u.seen(p[:n])
	}
	return n, err
}

// CloseWrite is for httputil.ReverseProxy, which ends one direction after the other.
func (u *upgraded) CloseWrite() error {
	if c, ok := u.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.ErrUnsupported
}
