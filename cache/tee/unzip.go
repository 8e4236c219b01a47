package tee

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/klauspost/compress/gzip"
)

// UnzipWatch undoes the compression of a watch's body: an apiserver compresses initial
// events, and what follows them, for clients that accept gzip (WatchListCompression, since
// 1.37). The client gets them uncompressed: it is on the same node, and after an outage
// the watch continues in the same encoding.
func UnzipWatch(res *http.Response) error {
	switch e := res.Header.Get("Content-Encoding"); e {
	case "", "identity":
	case "gzip":
		res.Header.Del("Content-Encoding")
		res.Header.Del("Content-Length")
		res.ContentLength = -1
		res.Body = &unzipped{Closer: res.Body, in: bufio.NewReader(res.Body)}
	default:
		return fmt.Errorf("a watch in the encoding %q", e)
	}
	return nil
}

// unzipped is a gzip stream, decompressed. An apiserver ends a gzip member when no more
// events wait. Between two members no decompressor is held: most of a node's watches are idle.
type unzipped struct {
	io.Closer
	in     *bufio.Reader
	member *gzip.Reader // nil between two of them
}

func (u *unzipped) Read(p []byte) (int, error) {
	for {
		if u.member == nil {
			if err := u.begin(); err != nil {
				return 0, err
			}
		}
		n, err := u.member.Read(p)
		if errors.Is(err, io.EOF) {
			unzippers.Put(u.member)
			u.member, err = nil, nil
		}
		if n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
	}
}

// begin waits for a member. io.EOF is the end of the stream, between two of them.
func (u *unzipped) begin() error {
	if _, err := u.in.Peek(1); err != nil {
		return err
	}
	z, ok := unzippers.Get().(*gzip.Reader)
	if !ok {
		return errNoUnzipper
	}
	if err := z.Reset(u.in); err != nil {
		unzippers.Put(z)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	z.Multistream(false)
	u.member = z
	return nil
}
