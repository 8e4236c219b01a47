package answer

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net/http"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/log"
	"github.com/edgehub-io/edgehub/cache/tee"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// objectBody is the body of one large object. Like the pieces of a list, it is encoded when its
// user's turn comes, and again for each part of it while too many bytes wait for clients. So an
// object that its client does not read is not held in memory.
type objectBody struct {
	request *Request
	copy    view.Copy
	to      wire.Representation
	reader  *log.Reader // with which the copy can be read
	out     waiting
	hash    uint64 // of the whole body, once it was encoded
	size    int64
	err     error // returned after out
}

// errOtherBody breaks off a body that has changed since its beginning was sent: the node has
// reported another status meanwhile.
var errOtherBody = errors.New("the object has changed while it was read")

// largeObject answers with one object that is larger than a piece of a list.
func (r *Request) largeObject(c *view.Copy, to wire.Representation) (*http.Response, error) {
	b := &objectBody{request: r, copy: *c, to: to, reader: c.NewReader()}
	if b.fill(); b.err != nil && !errors.Is(b.err, io.EOF) {
		b.reader.Close()
		return r.conversionFailed(to, b.err)
	}
	return Response(r.HTTP, http.StatusOK, to.ContentType(), b.size, b), nil
}

// fill encodes the object, and puts the next part of it into out.
func (b *objectBody) fill() {
	production, all := b.request.Answers.production, false
	err := production.run(b.request.HTTP.Context(), b.request.Query.User, func(w *Workspace) error {
		b.reader.Lend(w.read)
		defer func() { w.read = b.reader.Reclaim() }()
		o, err := b.copy.ObjectBy(b.reader)
		if err != nil {
			return err
		}
		if w.Out, err = AppendObject(w.Out[:0], b.request.derived(o, b.to), b.to); err != nil {
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
		b.err = io.EOF
	}
}

// AppendObject appends an object as the body of an answer in the representation r.
func AppendObject(dst []byte, o view.Object, r wire.Representation) ([]byte, error) {
	t := o.Type
	if o.Repr.Metadata != r.Metadata {
		t = convert.MetadataType
	}
	bare, err := convertBare(o.Bare, o.Type, o.Repr, r)
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
	b.out.release(b.request.Answers.production)
	b.reader.Close()
	if b.err == nil {
		b.err = tee.ErrStopReading
	}
	return nil
}
