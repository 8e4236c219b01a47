package limits

import (
	"bytes"
	"io"
	"net/http"
)

// MaxReplay is the size, in bytes, up to which a request body of known length is buffered, so
// that the request can be sent again after a GOAWAY from an apiserver that has not read it.
// The kubelet's pod and node status patches are smaller; larger bodies are streamed.
const MaxReplay = 256 << 10

// BufferBody makes the body of r replayable if it is small. It fails if the client disconnects
// before the end of the body.
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
