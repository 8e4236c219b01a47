package offline

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net/http"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/negotiation"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/tee"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// objectBody is one large object as an answer. It is made as pieces of a list are: when it
// is its user's turn, and again for each part of it where too much waits for clients. So
// what nobody reads is not held whole.
type objectBody struct {
	asked  *Request
	held   view.Copy
	to     negotiation.Representation
	reader *store.Reader // keeps the copy on disk
	out    waiting
	hash   uint64 // of the whole body, once it was made
	size   int64
	err    error // behind out
}

// errOtherBody breaks off a body that is not what its beginning was made of: the node has
// reported another status meanwhile.
var errOtherBody = errors.New("the object has changed while it was read")

// largeObject answers with one object that is larger than a piece of a list.
func (r *Request) largeObject(c *view.Copy, to negotiation.Representation) (*http.Response, error) {
	b := &objectBody{asked: r, held: *c, to: to, reader: c.View.NewReader()}
	if b.fill(); b.err != nil && !errors.Is(b.err, io.EOF) {
		b.reader.Close()
		if errors.Is(b.err, convert.ErrUnknownType) {
			return ErrorResponse(r.HTTP, NotAcceptable(&query.Query{Resource: r.resource(), Accept: to.ContentType()}))
		}
		return nil, b.err
	}
	return Response(r.HTTP, http.StatusOK, to.ContentType(), b.size, b), nil
}

// fill makes the object, and puts what of it comes next into out.
func (b *objectBody) fill() {
	production, all := b.asked.Answers.production, false
	err := production.run(b.asked.HTTP.Context(), b.asked.Query.User, func(w *Workspace) error {
		o, err := b.held.Object()
		if err != nil {
			return err
		}
		if w.Out, err = AppendObject(w.Out[:0], b.asked.overlaid(o), b.to); err != nil {
			return err
		}
		hash := maphash.Bytes(production.seed, w.Out)
		if b.size > 0 && hash != b.hash {
			return errOtherBody
		}
		b.hash, b.size = hash, int64(len(w.Out))
		all = b.out.fill(production, w)
		return nil
	})
	if b.err = err; err == nil && all {
		b.held.View.MarkServed()
		b.err = io.EOF
	}
}

// AppendObject appends an object as the body of an answer in the representation r.
func AppendObject(dst []byte, o view.Object, r negotiation.Representation) ([]byte, error) {
	bare, t, err := o.Bare, o.Type, error(nil)
	switch {
	case o.Repr.Metadata != r.Metadata:
		bare, err = convert.Metadata(o.Repr.Encoding, r.Encoding, o.Bare)
		t = convert.MetadataType
	case o.Repr != r:
		bare, err = convert.Bare(o.Repr.Encoding, r.Encoding, t, o.Bare)
	}
	if err != nil {
		return dst, fmt.Errorf("convert a cached object: %w", err)
	}
	return wire.AppendBody(dst, r.Encoding, t, bare), nil
}

func (b *objectBody) Read(p []byte) (int, error) {
	for b.out.IsEmpty() {
		if b.err != nil {
			return 0, b.err
		}
		b.fill()
	}
	return b.out.Read(p), nil
}

func (b *objectBody) Close() error {
	b.out.release(b.asked.Answers.production)
	b.reader.Close()
	if b.err == nil {
		b.err = tee.ErrStopReading
	}
	return nil
}
