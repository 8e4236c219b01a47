package answer

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/edgehub-io/edgehub/cache/derived"
	"github.com/edgehub-io/edgehub/cache/quota"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// Bounds on the memory of offline answers of all users.
const (
	// maxProducing is how many pieces are encoded at once. Converting an object of 1 MB takes
	// about 10 MB for a moment.
	maxProducing = 2
	// pieceSize is how many bytes of objects are encoded into one piece, or one larger object.
	// Including separators, a piece fits into MaxWaiting.
	pieceSize = 60 << 10
	// convertedPieceSize is pieceSize for converted objects: in JSON they are two or three
	// times as large as in protobuf.
	convertedPieceSize = 16 << 10
	// MaxWaiting is how many bytes of an answer wait for its client.
	MaxWaiting = 64 << 10
	// MaxLargeWaiting bounds the bytes of larger pieces, of single large objects, that wait
	// for all clients. Beyond it such an object is encoded again for each MaxWaiting bytes,
	// which takes CPU but no memory.
	MaxLargeWaiting = 4 << 20
	// maxWorkspace is the size up to which a buffer is reused, roughly the limit of an object
	// in etcd.
	maxWorkspace = 2 << 20
)

// production encodes the bodies of offline answers piece by piece, when their clients read. A
// client that does not read costs no more than its waiting piece: it holds no other memory,
// and no place in the queue.
type production struct {
	turns      *quota.Queue // by tenant and user
	workspaces sync.Pool
	large      atomic.Int64 // bytes of pieces larger than MaxWaiting
	seed       maphash.Seed // of hashes of bodies
}

func newProduction() *production {
	return &production{turns: quota.NewQueue(maxProducing, 0), seed: maphash.MakeSeed(), workspaces: sync.Pool{New: func() any { return new(Workspace) }}}
}

// Workspace has the buffers for encoding a piece.
type Workspace struct {
	read []byte // from the disk
	Out  []byte // for the client
}

// Write appends to out.
func (w *Workspace) Write(p []byte) (int, error) {
	w.Out = append(w.Out, p...)
	return len(p), nil
}

// run calls fn when the user reaches the head of the queue. fn must not keep the workspace. The
// error is that of fn or ctx.
func (p *production) run(ctx context.Context, user string, fn func(*Workspace) error) error {
	if err := p.turns.Acquire(ctx, quota.Tenant(user), user); err != nil {
		return err
	}
	defer p.turns.Release()
	w := p.workspaces.Get().(*Workspace) //nolint:forcetypeassert // see newProduction
	defer func() {
		if cap(w.read) <= maxWorkspace && cap(w.Out) <= maxWorkspace {
			w.read, w.Out = w.read[:0], w.Out[:0]
			p.workspaces.Put(w)
		}
	}()
	return fn(w)
}

// Pieces encodes the objects of a snapshot into pieces of an answer. It is for one goroutine.
type Pieces struct {
	production *production
	ctx        context.Context // of the request
	user       string
	source     *Source
	Snapshot   *view.Snapshot
	Derived    derived.Status // in the snapshot
	converts   bool           // objects of the snapshot
	size       int            // pieceSize or convertedPieceSize
	Out        waiting
}

// Pieces returns the objects of a snapshot, derived ones among them, as pieces of an answer. The caller
// must close it, which closes the snapshot. Its error is damage that is known already.
func (r *Request) Pieces(src *Source, snap *view.Snapshot) (Pieces, error) {
	if err := snap.Check(); err != nil {
		return Pieces{}, err
	}
	size, converts := pieceSize, src.View.Key.Metadata != src.Repr.Metadata || snap.Converts()
	if converts {
		size = convertedPieceSize
	}
	var all derived.Status
	if src.Repr.Metadata == "" {
		all = r.Answers.Derived.List(src.Selected(), snap)
	}
	return Pieces{production: r.Answers.production, ctx: r.HTTP.Context(), user: r.Query.User, source: src, Snapshot: snap, Derived: all, converts: converts, size: size}, nil
}

// Next calls add for the next objects, in the requested representation, and then fills Out with
// the bytes that add has written to the workspace. An object is valid until add returns. If
// Out has not enough room, the next call repeats the same objects.
func (p *Pieces) Next(add func(w *Workspace, object []byte) error) (again bool, err error) {
	members, reader, t := p.Snapshot.Members, p.Snapshot.Reader, p.source.View.ItemType()
	err = p.production.run(p.ctx, p.user, func(w *Workspace) error {
		reader.Lend(w.read)
		defer func() { w.read = reader.Reclaim() }()
		err := p.Snapshot.Next(p.size, func(name string, e wire.Encoding, bare []byte) error {
			object, err := p.source.Object(p.Derived[name], view.Object{Type: t, Repr: p.source.View.Repr(e), Bare: bare})
			if err != nil {
				return err
			}
			return add(w, object)
		})
		if err == nil && !p.Out.fill(p.production, w) {
			again, p.Snapshot.Members = true, members
		}
		return err
	})
	return again, err
}

// Close releases the snapshot and all buffers.
func (p *Pieces) Close() {
	p.Out.release(p.production)
	p.Snapshot.Close()
}

// waiting is the part of a piece that waits for a client. The zero value is empty.
type waiting struct {
	bytes []byte
	sent  int
	skip  int   // of the next piece, which is produced again
	large int64 // counted in production.large
}

// fill takes a piece, the Out of a workspace, after everything before it was sent. It returns
// false if there was not enough room for all of it: it must be encoded again, from the same
// state, for the rest.
func (w *waiting) fill(p *production, from *Workspace) (all bool) {
	w.release(p)
	rest := from.Out[w.skip:]
	n := int64(len(rest))
	switch {
	case w.skip == 0 && cap(from.Out) <= MaxWaiting:
		w.bytes, from.Out = from.Out, w.bytes // instead of a copy
		return true
	case n <= MaxWaiting:
		all = true
	case p.large.Add(n) <= MaxLargeWaiting:
		w.large, all = n, true
	default:
		p.large.Add(-n)
		rest = rest[:MaxWaiting]
	}
	if w.bytes, w.sent = append(w.bytes[:0], rest...), 0; all {
		w.skip = 0
	} else {
		w.skip += MaxWaiting
	}
	return all
}

// Read reads the waiting bytes.
func (w *waiting) Read(p []byte) int {
	n := copy(p, w.bytes[w.sent:])
	w.sent += n
	return n
}

// take returns the waiting bytes, which count as sent. They are valid until the next fill.
func (w *waiting) take() []byte {
	rest := w.bytes[w.sent:]
	w.sent = len(w.bytes)
	return rest
}

// IsEmpty reports whether all bytes were sent.
func (w *waiting) IsEmpty() bool { return w.sent == len(w.bytes) }

// release drops the waiting bytes.
func (w *waiting) release(p *production) {
	w.bytes, w.sent = w.bytes[:0], 0
	if w.large > 0 {
		p.large.Add(-w.large)
		w.bytes, w.large = nil, 0
	}
}
