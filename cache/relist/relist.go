package relist

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/edgehub-io/edgehub/cache/pages"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/records"
	"github.com/edgehub-io/edgehub/cache/view"
)

const (
	// maxLists is how many views the hub lists at once.
	maxLists = 2
	// timeout bounds one relist. Over a link of 1 Mbit/s 20 MB take three minutes.
	timeout = 15 * time.Minute
	// maxDiffBytes bounds the events that replace a list. If there are more, clients
	// have to list again.
	maxDiffBytes = 16 << 20
)

// Lister lists views again. It is safe for concurrent use.
type Lister struct {
	Options
	lists *semaphore.Weighted

	mu sync.Mutex
	// checks are the last version checks, by query.VersionSpace.
	checks map[string]*versionCheck
}

// Options are options of a lister. All are required.
type Options struct {
	*States
	Up       http.RoundTripper
	Views    *view.Views
	Pages    *pages.Lists
	Records  *records.Records
	Outages  *Outages
	Max      int64  // bytes of all views
	Relisted func() // called for each relist
	Now      func() time.Time
	Log      *slog.Logger
	// Background runs a function in a new goroutine, with a context that ends when the hub
	// stops. It returns false if the hub is stopping already.
	Background func(func(context.Context)) bool
	// SameUser returns nil if the credentials of a request that the hub has sent again still
	// belong to this user. Its error is identity.ErrReassigned, or another one while that is
	// unknown.
	SameUser func(user string, again *http.Request) error
}

// New returns a lister.
func New(o Options) *Lister {
	return &Lister{Options: o, lists: semaphore.NewWeighted(maxLists), checks: map[string]*versionCheck{}}
}

// Ended returns a relist of a view that succeeded after a time, or nil.
func (l *Lister) Ended(v *view.View, after time.Time) *Call {
	r := l.relisting(v)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil || !r.last.succeeded(after) {
		return nil
	}
	return r.last
}

// Sweep drops the results of old relists, and the state of views that were removed.
func (l *Lister) Sweep() { l.sweep(l.Views) }

// Call is one relist and its result.
type Call struct {
	Done chan struct{} // closed when the other fields are set

	Err   error
	ended time.Time
	// Events lead from the view's state at any version from Changed to From to its state at
	// version To. From is empty if there are no such events.
	Changed, From, To string
	Events            []byte
}

func (f *Call) isDone() bool {
	select {
	case <-f.Done:
		return true
	default:
		return false
	}
}

// succeeded reports whether the relist has succeeded after a time.
func (f *Call) succeeded(after time.Time) bool {
	return f.isDone() && f.Err == nil && f.ended.After(after)
}

// errUnfit is returned for a list that cannot be cached, now or later.
var errUnfit = errors.New("what came cannot be kept")

// IsPermanent reports whether another relist soon would fail, too.
func IsPermanent(err error) bool { return IsFinal(err) || errors.Is(err, errUnfit) }

// errStopped is returned while the hub stops.
var errStopped = errors.New("the hub is stopping")

// errBackedOff is returned while a view must not be listed.
var errBackedOff = errors.New("it was evicted, or listing it has just failed")

// Refresh lists a view in the background, because its watches are ahead of it. template is a
// request of a client that may read the view.
func (l *Lister) Refresh(v *view.View, template *http.Request) {
	if _, err := l.Relist(v, template, time.Time{}, true); err != nil {
		l.Log.Debug("view is not listed again", "view", v.String(), "reason", err)
	}
}

// Relist lists a view, or joins a relist that is running, or returns one that succeeded
// after the given time. If limited, it returns an error instead while relists of this view
// are backed off.
func (l *Lister) Relist(v *view.View, template *http.Request, after time.Time, limited bool) (*Call, error) {
	r := l.relisting(v)
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.last; f != nil && (!f.isDone() || !after.IsZero() && f.succeeded(after)) {
		return f, nil
	}
	if limited && !r.allowedLocked(l.Now()) {
		return nil, errBackedOff
	}
	f := &Call{Done: make(chan struct{})}
	r.last = f
	v.Hold()
	started := l.Background(func(ctx context.Context) {
		defer v.Release()
		f.Err = l.run(ctx, f, v, template)
		f.ended = l.Now()
		close(f.Done)
		if IsPermanent(f.Err) {
			r.backOff(f.ended)
		}
		if f.Err != nil && ctx.Err() == nil {
			l.Log.Warn("view could not be listed again", "view", v.String(), "err", f.Err)
		}
	})
	if !started {
		v.Release()
		f.Err = errStopped
		close(f.Done)
	}
	return f, nil
}

// run lists the view, and lists it again if the apiserver's store was restored.
func (l *Lister) run(ctx context.Context, f *Call, v *view.View, template *http.Request) error {
	if err := l.lists.Acquire(ctx, 1); err != nil {
		return err
	}
	defer l.lists.Release(1)
	ctx, stop := withValuesOf(ctx, template)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	l.Relisted()
	v.CountLists(1)
	defer v.CountLists(-1)
	result, err := l.runOnce(ctx, f, v, template)
	if err == nil && result == view.Restored {
		// Versions mean other objects now: there are no events from the state of before.
		_, err = l.runOnce(ctx, f, v, template)
		f.From, f.Events = "", nil
	}
	if err == nil && !l.Views.EnforceLimit(v) {
		return fmt.Errorf("list: %w: it takes more than --cache-max-bytes alone", errUnfit)
	}
	return err
}

func (l *Lister) runOnce(ctx context.Context, f *Call, v *view.View, template *http.Request) (view.CommitResult, error) {
	b := v.NewBuilder(v.Latest(), true)
	defer b.End()
	if err := l.fetch(ctx, b, template); err != nil {
		return view.Outdated, err
	}
	f.To = b.Meta.ResourceVersion
	f.Changed, f.From, f.Events = l.compareWith(v, b)
	result := l.commit(b, f.To)
	if result != view.Committed { // events do not lead to this state
		f.From, f.Events = "", nil
	}
	return result, nil
}

// compareWith returns the events that lead from the view's state, valid between two
// versions, to that of a Builder; no versions if there are no such events.
func (l *Lister) compareWith(v *view.View, b *view.Builder) (changed, from string, events []byte) {
	old, err := v.Snapshot()
	if err != nil {
		l.Log.Error("cache is damaged", "view", v.String(), "err", err)
	}
	if old == nil {
		return "", "", nil
	}
	defer old.Close()
	if events, err = diff(old, b); err != nil || len(events) > maxDiffBytes {
		return "", "", nil
	}
	return old.Changed, old.Version, events
}

// Commit makes a list, the answer to a query, the state of its view. template is a request
// of a client that may read the view.
func (l *Lister) Commit(q *query.Query, template *http.Request, b *view.Builder, version string) {
	v := b.View
	if !b.Consistent {
		l.Views.InheritSeen(q, v)
	}
	switch l.commit(b, version) {
	case view.Restored:
		l.Refresh(v, template)
	case view.Outdated:
		if !b.Consistent {
			l.Verify(v, template)
		}
	case view.Committed:
		if v.Behind() { // the answer came from an apiserver's watch cache that lags behind another
			l.Refresh(v, template)
		}
	}
	if !l.Views.EnforceLimit(v) {
		l.Log.Warn("not kept: it takes more than --cache-max-bytes alone", "view", v.String(), "max", l.Max)
	}
}

// commit makes a list the state of its view. After view.Restored the view is empty: the caller
// must list it again.
func (l *Lister) commit(b *view.Builder, version string) view.CommitResult {
	result := l.Views.Commit(b, version)
	if result == view.Restored {
		l.restored(b.View, version)
	}
	return result
}
