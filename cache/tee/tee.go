// Package tee looks at the bodies of answers while their clients read them. What it cannot
// read passes all the same, and what the client gets does not depend on what is made of it;
// only the last bytes wait until whoever looks on has taken over the whole body.
//
// A body is for one goroutine. Where it is compressed, another one decompresses it, and ends
// with it.
package tee

import (
	"compress/gzip"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"

	"github.com/edgehub-io/edgehub/cache/negotiation"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// maxObject bounds the body of a GET that is kept. etcd takes objects of up to 1.5 MiB.
const maxObject = wire.DefaultMaxSize

// Decoder looks at the body of an answer while it passes: it is written to, and
// told when the body has ended cleanly. What it cannot read is passed on all the
// same.
type Decoder struct {
	sink   sink
	unzip  *io.PipeWriter // nil where the body is not compressed
	done   chan error     // of the goroutine that decompresses; holds one
	Failed error
}

// sink takes the plain bytes of a body. An error of Write says that it wants no more.
type sink interface {
	io.Writer
	// Close is called after a clean end, and returns what was wrong with the body.
	Close() error
}

// NewDecoder reads a body in the representation r. Each item of a list goes to
// take, which is also told of the list's metadata at the end.
func NewDecoder(r negotiation.Representation, res *http.Response, take ItemHandler) *Decoder {
	split, err := wire.NewSplitter(r.Encoding, wire.SplitOptions{}, take.Item)
	if err != nil {
		return &Decoder{Failed: err}
	}
	return Decode(res, &listSink{split, take, r})
}

// Decode undoes the compression of a body on its way to s.
func Decode(res *http.Response, s sink) *Decoder {
	d := &Decoder{sink: s}
	switch res.Header.Get("Content-Encoding") {
	case "", "identity":
	case "gzip":
		in, out := io.Pipe()
		d.unzip, d.done = out, make(chan error, 1)
		go func() {
			err := gunzip(s, in)
			in.CloseWithError(errors.Join(err, ErrStopReading)) // what comes then is nobody's
			d.done <- err
		}()
	default:
		d.Failed = errors.New("the body is compressed in a way that was not asked for")
	}
	return d
}

// unzippers are used again: each takes 40 KB.
var unzippers = sync.Pool{New: func() any { return new(gzip.Reader) }}

func gunzip(w io.Writer, r io.Reader) error {
	z, ok := unzippers.Get().(*gzip.Reader)
	if !ok {
		return errors.New("not a gzip reader")
	}
	defer unzippers.Put(z)
	if err := z.Reset(r); err != nil {
		return err
	}
	_, err := io.Copy(w, z)
	return err
}

// Write ends a copy, too, when the list cannot be kept: nobody decompresses then
// what nobody reads.
func (l *listSink) Write(p []byte) (int, error) {
	n, _ := l.Splitter.Write(p)
	return n, l.Failed()
}

// Write never fails: a client's answer does not depend on whether it can be kept.
func (d *Decoder) Write(p []byte) (int, error) {
	if d.Failed == nil {
		d.Failed = d.look(p)
	}
	return len(p), nil
}

func (d *Decoder) look(p []byte) error {
	var err error
	if d.unzip != nil {
		_, err = d.unzip.Write(p)
	} else {
		_, err = d.sink.Write(p)
	}
	return err
}

// Strict is a decoder that ends a copy as soon as the body cannot be kept.
type Strict struct{ *Decoder }

func (s Strict) Write(p []byte) (int, error) {
	n, _ := s.Decoder.Write(p)
	return n, s.Failed
}

// Finish is called after a clean end of the body. It returns nil if the body was
// whole and has been understood.
func (d *Decoder) Finish() error {
	if err := d.Stop(nil); err != nil {
		return err
	}
	return d.sink.Close()
}

// Stop ends the decompression, cleanly or not.
func (d *Decoder) Stop(cause error) error {
	if d.unzip != nil {
		d.unzip.CloseWithError(cause) // nil is io.EOF
		if err := <-d.done; err != nil {
			d.Failed = err
		}
		d.unzip = nil
	}
	return d.Failed
}

// ItemHandler is what list items go to.
type ItemHandler interface {
	Item(item []byte, m *wire.Meta) error
	List(m wire.ListMeta) error
}

// listSink splits a list.
type listSink struct {
	*wire.Splitter
	take ItemHandler
	repr negotiation.Representation
}

func (l *listSink) Close() error {
	m, err := l.Splitter.Close()
	if err != nil {
		return err
	}
	if !l.repr.Holds(m.TypeMeta) {
		return wire.ErrNotList
	}
	return l.take.List(m)
}

// ObjectSink collects the body of a GET.
type ObjectSink struct {
	body []byte
	over bool
	Take func(body []byte) error
}

func (o *ObjectSink) Write(p []byte) (int, error) {
	if o.over = o.over || len(o.body)+len(p) > maxObject; !o.over {
		o.body = append(o.body, p...)
	}
	return len(p), nil
}

// Close calls Take, if the body was not too large.
func (o *ObjectSink) Close() error {
	if o.over {
		return wire.ErrTooLarge
	}
	return o.Take(o.body)
}

// body is one that is read by a client, while a decoder looks on. What is to be
// committed is committed before the client gets the body's last bytes.
type body struct {
	io.ReadCloser
	decoder *Decoder
	left    int64 // bytes to come; -1 where that is not known
	end     func(error)
	ended   bool
}

// Body makes res's body one that d sees too. end is called once: with nil
// after a whole body that d has understood, or with the reason why not.
func Body(res *http.Response, d *Decoder, end func(error)) {
	res.Body = &body{ReadCloser: res.Body, decoder: d, left: res.ContentLength, end: end}
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.ended {
		return n, err
	}
	if n > 0 {
		b.decoder.Write(p[:n]) //nolint:errcheck // it does not fail
	}
	if b.left > 0 {
		b.left -= int64(n)
	}
	switch {
	case err == io.EOF, err == nil && b.left == 0:
		b.finish(b.decoder.Finish())
	case err != nil:
		b.finish(errors.Join(err, ErrStopReading, b.decoder.Stop(err)))
	}
	return n, err
}

// Close before the end is a client that went away.
func (b *body) Close() error {
	if !b.ended {
		b.finish(errors.Join(ErrStopReading, b.decoder.Stop(ErrStopReading)))
	}
	return b.ReadCloser.Close()
}

func (b *body) finish(err error) {
	b.ended = true
	b.end(err)
}

// ErrStopReading ends a read early.
var ErrStopReading = errors.New("nobody reads on")

// LogUnkept logs why an answer was passed on and not kept, if err says so.
func LogUnkept(log *slog.Logger, err error) {
	if err != nil && !errors.Is(err, ErrStopReading) {
		log.Debug("an answer was passed on and not kept", "reason", err)
	}
}
