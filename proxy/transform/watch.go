package transform

import (
	"io"
	"net/http"
	"slices"

	"github.com/edgehub-io/edgehub/cache/tee"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// watch transforms the events of a watch.
func (a *answer) watch(res *http.Response) error {
	if err := tee.UnzipWatch(res); err != nil {
		return err
	}
	frames, err := wire.NewFrameReader(res.Body, a.encoding)
	if err != nil {
		return err
	}
	res.Header.Del("Content-Length")
	res.ContentLength = -1
	res.Body = &events{answer: a, Closer: res.Body, frames: frames}
	return nil
}

// events is the body of a watch, transformed.
type events struct {
	io.Closer
	answer *answer
	frames *wire.FrameReader
	ready  []byte // not read yet; valid until the next frame
	err    error  // after ready
}

// Read returns at most one event, so that each is flushed at once.
func (e *events) Read(p []byte) (int, error) {
	for len(e.ready) == 0 {
		if e.err != nil {
			return 0, e.err
		}
		e.next()
	}
	n := copy(p, e.ready)
	e.ready = e.ready[n:]
	return n, nil
}

// next reads an event. One that cannot be transformed becomes an ERROR, the last event.
func (e *events) next() {
	var f wire.Frame
	if f, e.err = e.frames.Next(); e.err != nil {
		return
	}
	edited, err := e.answer.event(&f)
	if err != nil {
		e.answer.transport.opts.Logger.Error("an event cannot be transformed: the watch ends", "err", err)
		e.err = io.EOF
		edited = wire.AppendError(nil, e.answer.encoding, statusOf(err))
	}
	e.ready = edited
}

// event returns a frame as its reader gets it.
func (a *answer) event(f *wire.Frame) ([]byte, error) {
	isObject := f.Err == nil && slices.Contains(kinds, string(f.Meta.Kind)) // no rest of a large event, error, or metadata
	if !isObject || a.idle() || !slices.ContainsFunc(a.transforms, func(t *Transform) bool { return overlap(t.ObjectName, string(f.Meta.Name)) }) {
		return f.Raw, nil
	}
	bare, err := wire.AppendBare(nil, a.encoding, f.Object)
	if err != nil {
		return nil, err
	}
	out, err := a.object(bare, &f.Meta)
	if err != nil || !out.changed {
		return f.Raw, err
	}
	return wire.AppendEvent(nil, a.encoding, f.Type, f.Meta.TypeMeta(), out.bare), nil
}
