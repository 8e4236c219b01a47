package transform

import (
	"io"
	"net/http"
	"sync"

	"github.com/edgehub-io/edgehub/cache/tee"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// pump reads the frames of a watch, so that what reads it can wait for other things as well. It is the Closer of the
// watch's body.
type pump struct {
	body   io.Closer
	reader *wire.FrameReader

	frames  chan frame    // one at a time
	again   chan struct{} // the frame has been used
	closed  chan struct{} // by Close
	closing sync.Once
}

// frame is what a pump has read.
type frame struct {
	wire.Frame
	err error
}

// pump returns the pump of a watch's body, which the caller replaces and then calls run.
func (a *answer) pump(res *http.Response) (*pump, error) {
	if err := tee.UnzipWatch(res); err != nil {
		return nil, err
	}
	reader, err := wire.NewFrameReader(res.Body, a.encoding)
	if err != nil {
		return nil, err
	}
	res.Header.Del("Content-Length")
	res.ContentLength = -1
	return &pump{
		body: res.Body, reader: reader,
		frames: make(chan frame), again: make(chan struct{}), closed: make(chan struct{}),
	}, nil
}

// run ends with the body.
func (p *pump) run() {
	for {
		next, err := p.reader.Next()
		select {
		case p.frames <- frame{next, err}:
		case <-p.closed:
			return
		}
		if err != nil {
			return
		}
		select {
		case <-p.again:
		case <-p.closed:
			return
		}
	}
}

// used is called when the last frame is not needed any more.
func (p *pump) used() {
	select {
	case p.again <- struct{}{}:
	case <-p.closed:
	}
}

// Close ends the watch.
func (p *pump) Close() error {
	p.closing.Do(func() { close(p.closed) })
	return p.body.Close()
}
