// Package tee decodes the bodies of answers while their clients read them. The client always
// gets the body unchanged, also if it cannot be decoded; only its last bytes wait until the
// whole body has been handled.
//
// A body is for one goroutine at a time. If it is compressed, the decompressor is a coroutine of it,
// which ends with it.
package tee

import (
	"errors"
	"io"
	"log/slog"
	"net/http"

	"github.com/edgehub-io/edgehub/cache/wire"
)

// maxObject bounds the body of a GET that is cached. etcd accepts objects of up to 1.5 MiB.
const maxObject = wire.MaxSize

// Decoder decodes the body of an answer. The body is written to it; Finish is called after a
// clean end.
type Decoder struct {
	sink   sink
	unzip  *gunzip // nil if the body is not compressed
	Failed error
}

// sink receives the uncompressed body. After an error of Write it gets no more.
type sink interface {
	io.Writer
	// Close is called after a clean end, and returns an error for an invalid body.
	Close() error
}

// NewDecoder returns a decoder of a list in the representation r. take gets its items and, at
// the end, its metadata.
func NewDecoder(r wire.Representation, res *http.Response, take ItemHandler) *Decoder {
	split, err := wire.NewSplitter(r.Encoding, take.Item)
	if err != nil {
		return &Decoder{Failed: err}
	}
	return Decode(res, &listSink{split, take, r})
}

// Decode returns a decoder that passes the uncompressed body to s.
func Decode(res *http.Response, s sink) *Decoder {
	d := &Decoder{sink: s}
	switch res.Header.Get("Content-Encoding") {
	case "", "identity":
	case "gzip":
		d.unzip = newGunzip(s)
	default:
		d.Failed = errors.New("the body is compressed in a way that was not asked for")
	}
	return d
}

// Write never fails: the client gets the answer whether or not it can be cached.
func (d *Decoder) Write(p []byte) (int, error) {
	if d.Failed == nil {
		d.Failed = d.decode(p)
	}
	return len(p), nil
}

func (d *Decoder) decode(p []byte) error {
	var err error
	if d.unzip != nil {
		_, err = d.unzip.Write(p)
	} else {
		_, err = d.sink.Write(p)
	}
	return err
}

// Finish must be called after a clean end of the body. It returns nil if the body was complete
// and valid.
func (d *Decoder) Finish() error {
	if err := d.Stop(nil); err != nil {
		return err
	}
	return d.sink.Close()
}

// Stop ends the decompression, cleanly or not.
func (d *Decoder) Stop(cause error) error {
	if d.unzip != nil {
		if err := d.unzip.end(cause); err != nil {
			d.Failed = err
		}
		d.unzip = nil
	}
	return d.Failed
}

// ItemHandler handles the items and the metadata of a list.
type ItemHandler interface {
	Item(item []byte, m *wire.Meta) error
	List(m wire.ListMeta) error
}

// ListMeta reads the metadata of a list, and ignores its items. See ItemHandler.
type ListMeta struct{ wire.ListMeta }

// Item does nothing.
func (*ListMeta) Item([]byte, *wire.Meta) error { return nil }

// List sets the metadata.
func (l *ListMeta) List(m wire.ListMeta) error {
	l.ListMeta = m
	return nil
}

// listSink splits a list into its items.
type listSink struct {
	*wire.Splitter
	take ItemHandler
	repr wire.Representation
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

// body is a body that is decoded while a client reads it. Its end is handled before the client
// gets the last bytes.
type body struct {
	io.ReadCloser
	decoder *Decoder
	left    int64 // remaining bytes; -1 if unknown
	end     func(error)
	ended   bool
}

// Body replaces res's body by one that d decodes, too. end is called once: with nil after a
// complete, valid body, or else with the reason.
func Body(res *http.Response, d *Decoder, end func(error)) {
	res.Body = &body{ReadCloser: res.Body, decoder: d, left: res.ContentLength, end: end}
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.ended {
		return n, err
	}
	if n > 0 {
		b.decoder.Write(p[:n]) //nolint:errcheck // never fails
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

// Close before the end means that the client has disconnected.
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

// LogUnkept logs err, the reason why an answer was relayed but not cached, if there is one.
func LogUnkept(log *slog.Logger, err error) {
	if err != nil && !errors.Is(err, ErrStopReading) {
		log.Debug("an answer was passed on and not kept", "reason", err)
	}
}
