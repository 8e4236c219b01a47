package limits

import (
	"bytes"
	"io"
	"net/http"
)

// MaxReplay is the size, in bytes, up to which a request body of known length
// is held in memory, so that the request can be sent again when an apiserver
// says GOAWAY before it has read it. A kubelet's pod and node status patches
// are smaller; what is larger goes through as a stream.
const MaxReplay = 256 << 10

// BufferBody makes the body of r replayable if it is small. A client that
// breaks off in the middle of its body is an error.
func BufferBody(r *http.Request) error {
	if r.Body == nil || r.ContentLength <= 0 || r.ContentLength > MaxReplay {
		return nil
	}
	held := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, held); err != nil {
		return err
	}
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(held)), nil }
	r.Body, _ = r.GetBody()
	return nil
}
