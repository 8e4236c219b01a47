package cache

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// list answers with the view's members at its version.
func (x *exchange) list() (*http.Response, error) {
	q := x.query
	src, err := x.source()
	if err != nil {
		return x.status(err)
	}
	if q.continueToken != "" {
		return x.status(apierrors.NewResourceExpired("edgehub: the cloud cannot be reached, and this list was begun there; list from the beginning"))
	}
	src.view.touch(x.cache.now())
	snap, err := src.view.snapshot()
	if err != nil {
		return nil, err
	}
	if snap == nil {
		return nil, errNeverRead
	}
	if err := q.refuses(snap.version); err != nil {
		snap.reader.Close()
		return x.status(err)
	}
	body, size, err := src.body(snap)
	if err != nil {
		snap.reader.Close()
		if errors.Is(err, convert.ErrUnknownType) {
			return x.status(notAcceptable(q))
		}
		return nil, err
	}
	return answer(x.req, http.StatusOK, src.repr.ContentType(), size, body), nil
}

// refuses says why a view at a version is no answer, in an apiserver's words.
func (q *query) refuses(version string) error {
	if !isVersion(q.version) {
		return nil
	}
	order := compare(q.version, version)
	switch {
	case order > 0:
		return tooLarge(q.version, version)
	case order < 0 && q.match == string(metav1.ResourceVersionMatchExact):
		return apierrors.NewResourceExpired(fmt.Sprintf("edgehub: the cloud cannot be reached, and version %s is not cached; version %s is", q.version, version))
	}
	return nil
}

// tooLarge is what an apiserver says that has not got to a version yet. Clients
// know it by its cause, and ask again without a version.
func tooLarge(asked, have string) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %s, current: %s", asked, have), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version",
	}}
	return err
}

// body is the body of a list.
func (s *source) body(snap *snapshot) (io.ReadCloser, int64, error) {
	if s.converts() {
		return s.converted(snap)
	}
	var sizes wire.ItemSizes
	for _, m := range snap.members {
		sizes.Add(m.Size)
	}
	b := &listBody{view: s.view, snapshot: snap}
	list, err := wire.NewListWriter(&b.buf, s.repr.Encoding, snap.meta, sizes)
	if err != nil {
		return nil, 0, fmt.Errorf("put list together: %w", err)
	}
	b.list = list
	// What is wrong with the cache shows before the answer has begun, if it is at
	// the beginning.
	if b.fill(); b.err != nil && !errors.Is(b.err, io.EOF) {
		return nil, 0, b.err
	}
	return b, list.Size(), nil
}

// converted makes the whole list at once: how long its items are shows when they
// are converted.
func (s *source) converted(snap *snapshot) (io.ReadCloser, int64, error) {
	var items [][]byte
	var sizes wire.ItemSizes
	for len(snap.members) > 0 {
		err := snap.next(func(o store.Object) error {
			item, err := s.object(o.Bytes)
			if err == nil {
				items = append(items, bytes.Clone(item))
				sizes.Add(len(item))
			}
			return err
		})
		if err != nil {
			return nil, 0, err
		}
	}
	snap.reader.Close()
	var buf bytes.Buffer
	list, err := wire.NewListWriter(&buf, s.repr.Encoding, s.meta(snap.meta), sizes)
	if err != nil {
		return nil, 0, fmt.Errorf("put list together: %w", err)
	}
	for _, item := range items {
		if err := list.WriteItem(item); err != nil {
			return nil, 0, fmt.Errorf("put list together: %w", err)
		}
	}
	if err := list.Close(); err != nil {
		return nil, 0, fmt.Errorf("put list together: %w", err)
	}
	return io.NopCloser(&buf), int64(buf.Len()), nil
}

// listBody reads a list from the disk as its client reads it. Damage that shows
// in the middle breaks the body off: it is never short and whole at once.
type listBody struct {
	view     *view
	snapshot *snapshot
	list     *wire.ListWriter
	buf      pieces
	err      error // behind buf
}

// pieces is bytes that wait to be read. Objects are not copied into it: they hold
// until the next are read from the disk, and that is when pieces is empty.
type pieces struct {
	all   [][]byte
	small []byte // what is copied
}

// smallPiece is the size below which copying costs less than another piece.
const smallPiece = 512

func (s *pieces) Write(p []byte) (int, error) {
	if len(p) >= smallPiece {
		s.all = append(s.all, p)
		return len(p), nil
	}
	if len(s.small)+len(p) > cap(s.small) {
		s.small = make([]byte, 0, 16<<10)
	}
	start := len(s.small)
	s.small = append(s.small, p...)
	s.all = append(s.all, s.small[start:])
	return len(p), nil
}

// read is for a p that is not empty, and pieces that are not either.
func (s *pieces) read(p []byte) (n int) {
	for n < len(p) && len(s.all) > 0 {
		copied := copy(p[n:], s.all[0])
		n += copied
		if s.all[0] = s.all[0][copied:]; len(s.all[0]) == 0 {
			s.all = s.all[1:]
		}
	}
	return n
}

func (b *listBody) Read(p []byte) (int, error) {
	for len(b.buf.all) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		b.fill()
	}
	return b.buf.read(p), nil
}

// fill puts the next objects into buf.
func (b *listBody) fill() {
	b.buf.small = b.buf.small[:0] // all of it has been read
	var err error
	if len(b.snapshot.members) > 0 {
		err = b.snapshot.next(func(o store.Object) error { return b.list.WriteItem(o.Bytes) })
	} else if err = b.list.Close(); err == nil {
		b.err = io.EOF
	}
	if err != nil { // also if the objects do not have the sizes that Content-Length was made of
		b.err = b.view.broken(b.snapshot.version, err)
	}
}

// broken is called when an object that should be there at a version of the view
// cannot be read.
func (v *view) broken(version string, err error) error {
	if !errors.Is(err, store.ErrClosed) {
		v.dropAt(version)
	}
	return fmt.Errorf("the cache of %s is damaged, and is read again from the cloud: %w", v, err)
}

func (b *listBody) Close() error {
	b.snapshot.reader.Close()
	if b.err == nil {
		b.err = errStopReading
	}
	return nil
}
