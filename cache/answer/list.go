package answer

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/tee"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// List answers with the objects of the query at the newest version for which all of them are known.
func (r *Request) List() (*http.Response, error) {
	q := r.Query
	src, snap, err := r.Read()
	if err != nil {
		return ErrorResponse(r.HTTP, err)
	}
	src.View.Touch()
	if err := refuses(q, snap.Version); err != nil {
		snap.Close()
		return ErrorResponse(r.HTTP, err)
	}
	body, err := r.listBody(src, snap)
	if err != nil {
		snap.Close()
		return nil, err
	}
	return Response(r.HTTP, http.StatusOK, src.Repr.ContentType(), body.list.Size(), body), nil
}

// refuses returns the error of an apiserver if a view at this version cannot answer.
func refuses(q *query.Query, version string) error {
	if q.ContinueToken != "" {
		return apierrors.NewResourceExpired("edgehub: the cloud cannot be reached, and this list was begun there; list from the beginning")
	}
	if !versions.Valid(q.Version) {
		return nil
	}
	order := versions.Compare(q.Version, version)
	switch {
	case order > 0:
		return TooLargeVersion(q.Version, version)
	case order < 0 && q.VersionMatch == string(metav1.ResourceVersionMatchExact):
		return apierrors.NewResourceExpired(fmt.Sprintf("edgehub: the cloud cannot be reached, and version %s is not cached; version %s is", q.Version, version))
	}
	return nil
}

// TooLargeVersion is the error of an apiserver that has not reached a version yet. Clients
// recognize its cause, and retry without a version.
func TooLargeVersion(asked, have string) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %s, current: %s", asked, have), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version",
	}}
	return err
}

// listBody is a list that is encoded piece by piece while its client reads. If damage shows in
// the middle, the body breaks off.
type listBody struct {
	Pieces

	list *wire.ListWriter
	to   *Workspace // to which list writes now
	err  error      // returned after Out
}

// listBody returns the body of a list. Its error is damage in the first piece.
func (r *Request) listBody(src *Source, snap *view.Snapshot) (*listBody, error) {
	pieces, err := r.Pieces(src, snap)
	if err != nil {
		return nil, err
	}
	b := &listBody{Pieces: pieces}
	sizes, err := b.sizes()
	if err != nil {
		return nil, err
	}
	if b.list, err = wire.NewListWriter(b, src.Repr.Encoding, src.Meta(snap.Meta), sizes); err != nil {
		return nil, fmt.Errorf("put list together: %w", err)
	}
	if b.fill(); b.err != nil && !errors.Is(b.err, io.EOF) {
		return nil, b.err
	}
	return b, nil
}

// sizes returns the sizes of the encoded items. A list in protobuf begins with its length, so
// items that are converted or overlaid are encoded twice.
func (b *listBody) sizes() (sizes wire.ItemSizes, err error) {
	members, changes := b.Snapshot.Members, len(b.Derived) > 0 || b.converts
	if changes && b.source.Repr.Encoding == wire.JSON {
		return wire.UnknownSizes(len(members)), nil
	}
	b.Snapshot.Members = nil
	for i := range members {
		m := &members[i]
		size, asIs := m.SizeIn(b.source.Repr.Encoding)
		if b.Derived[m.Name] != nil || !asIs || b.source.View.Key.Metadata != b.source.Repr.Metadata {
			b.Snapshot.Members = append(b.Snapshot.Members, *m)
		} else {
			sizes.Add(size)
		}
	}
	defer func() { b.Snapshot.Members = members }()
	for len(b.Snapshot.Members) > 0 && err == nil {
		_, err = b.Next(func(_ *Workspace, item []byte) error {
			sizes.Add(len(item))
			return nil
		})
	}
	return sizes, err
}

// Write is for the list writer.
func (b *listBody) Write(p []byte) (int, error) { return b.to.Write(p) }

// Read fills all of p if possible: what it returns goes to the client in one write.
func (b *listBody) Read(p []byte) (n int, err error) {
	for n < len(p) {
		for b.Out.IsEmpty() {
			if b.err != nil {
				return n, b.err
			}
			b.fill()
		}
		n += b.Out.Read(p[n:])
	}
	return n, nil
}

// WriteTo writes the rest of the list, piece by piece, without another copy.
func (b *listBody) WriteTo(w io.Writer) (sent int64, err error) {
	for {
		n, err := w.Write(b.Out.take())
		if sent += int64(n); err != nil {
			return sent, err
		}
		switch {
		case errors.Is(b.err, io.EOF):
			return sent, nil
		case b.err != nil:
			return sent, b.err
		}
		b.fill()
	}
}

// fill puts the next piece into Out.
func (b *listBody) fill() {
	if len(b.Snapshot.Members) == 0 {
		b.end()
		return
	}
	before := *b.list
	again, err := b.Next(func(w *Workspace, item []byte) error {
		b.to = w
		return b.list.WriteItem(item)
	})
	if again {
		*b.list = before
	}
	b.err = err
}

// end puts the end of the list, after its items, into Out.
func (b *listBody) end() {
	b.to = &Workspace{}
	if err := b.list.Close(); err != nil { // the items have other sizes than those in Content-Length
		b.err = fmt.Errorf("end list: %w", err)
		return
	}
	b.Out.fill(b.production, b.to)
	b.err = io.EOF
}

func (b *listBody) Close() error {
	b.Pieces.Close()
	if b.err == nil {
		b.err = tee.ErrStopReading
	}
	return nil
}
