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

	"github.com/edgehub-io/edgehub/cache/records"
	"github.com/edgehub-io/edgehub/cache/view"
)

const (
	// maxLists is how many views are listed at once by the hub itself.
	maxLists = 2
	// timeout is how long a list may take that the hub asks for itself. Over
	// a link of 1 Mbit/s 20 MB take three minutes.
	timeout = 15 * time.Minute
	// MaxPause is how long open watches that need their view listed wait at most after the
	// last list, if that happens again and again, because the disk is full, say. The first
	// time they wait for two seconds.
	MaxPause = 5 * time.Minute
	// Calm is the time without such a list after which they may ask at once again.
	Calm = 10 * time.Minute
	// maxDifference bounds the bytes of events that stand for a list. Where there
	// are more, clients are told to list again.
	maxDifference = 16 << 20
)

// Lister lists views again that their watches have got ahead of, and has views follow the
// apiservers. It is safe for concurrent use. mu is taken before the locks of views and of
// what it guards, and after that of evictions.
type Lister struct {
	Options
	lists *semaphore.Weighted

	mu sync.Mutex
	of map[*view.View]*relisting
}

// Options are options of a lister. All are required.
type Options struct {
	Up       http.RoundTripper
	Views    *view.Views
	Pages    *view.Pages
	Records  *records.Records
	Outages  *Outages
	Max      int64  // bytes, of all views together
	Relisted func() // called with each list
	Now      func() time.Time
	Log      *slog.Logger
	// Background runs a function in a goroutine of its own, with a context that ends when
	// the hub stops. It returns false if that is so already.
	Background func(func(context.Context)) bool
	// StillOf returns nil if an apiserver has answered this user when the hub sent a
	// client's request again. Its error is identity.ErrReassigned, or says that it is not
	// known for now.
	StillOf func(user string, again *http.Request) error
}

// New returns a lister.
func New(o Options) *Lister {
	return &Lister{Options: o, lists: semaphore.NewWeighted(maxLists), of: map[*view.View]*relisting{}}
}

// relisting returns that of a view.
func (l *Lister) relisting(v *view.View) *relisting {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.of[v]
	if r == nil {
		r = new(relisting)
		l.of[v] = r
	}
	return r
}

// Ended returns a list of a view that has ended after a time, or nil.
func (l *Lister) Ended(v *view.View, after time.Time) *Call { return l.relisting(v).ended(after) }

// BackOff keeps open watches from having a view listed for some time.
func (l *Lister) BackOff(v *view.View) { l.relisting(v).backOff(l.Now()) }

// Forget is called when a view is no more.
func (l *Lister) Forget(v *view.View) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.of, v)
}

// Sweep lets go of what nobody can need any more.
func (l *Lister) Sweep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for v, r := range l.of {
		r.sweep(l.Now())
		if l.Views.Find(v.Key) != v {
			delete(l.of, v)
		}
	}
}

// Call is a list that the hub asked for, and what it changed.
type Call struct {
	Done chan struct{} // closed when the rest is set

	Err   error
	ended time.Time
	// Whoever had seen the view as it was anywhere between the versions changed
	// and from has seen its newest state with events behind it, and is at version
	// to. from is empty where there are no such events.
	Changed, From, To string
	Events            []byte
}

// errUnfit is returned for a list that cannot be kept, now or later.
var errUnfit = errors.New("what came cannot be kept")

// IsPermanent reports whether listing again soon is no use.
func IsPermanent(err error) bool { return IsFinal(err) || errors.Is(err, errUnfit) }

// errStopped is returned while the hub stops.
var errStopped = errors.New("the hub is stopping")

// errBackedOff is returned where a view is not to be listed now.
var errBackedOff = errors.New("it was evicted, or listing it has just failed")

// Refresh has a view listed in the background, because its watches go on from a
// version that the view is not at. template is a request whose sender may read it.
func (l *Lister) Refresh(v *view.View, template *http.Request) {
	if _, err := l.Relist(v, template, time.Time{}, true); err != nil {
		l.Log.Debug("view is not listed again", "view", v.String(), "reason", err)
	}
}

// Relist lists a view, or joins whoever does, or takes a list that has ended
// after the given time.
func (l *Lister) Relist(v *view.View, template *http.Request, after time.Time, gently bool) (*Call, error) {
	r := l.relisting(v)
	r.mu.Lock()
	defer r.mu.Unlock()
	now := l.Now()
	if f := r.last; f != nil {
		select {
		case <-f.Done:
			if f.Err == nil && !after.IsZero() && f.ended.After(after) {
				return f, nil
			}
		default:
			return f, nil
		}
	}
	if gently && !r.allowedLocked(now) {
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

// run lists the view, works out the difference, and commits.
func (l *Lister) run(ctx context.Context, f *Call, v *view.View, template *http.Request) error {
	if err := l.lists.Acquire(ctx, 1); err != nil {
		return err
	}
	defer l.lists.Release(1)
	ctx, cancel := context.WithTimeout(withValuesOf(ctx, template.Context()), timeout)
	defer cancel()

	l.Relisted()
	v.CountLists(1)
	defer v.CountLists(-1)
	verdict, err := l.runOnce(ctx, f, v, template)
	if err == nil && verdict == view.Restored {
		// Versions name other objects now: nothing may be taken for known.
		l.restored(v, f.To)
		_, err = l.runOnce(ctx, f, v, template)
		f.From, f.Events = "", nil
	}
	if err == nil && !l.Views.EnforceLimit(v) {
		return fmt.Errorf("list: %w: it takes more than --cache-max-bytes alone", errUnfit)
	}
	return err
}

func (l *Lister) runOnce(ctx context.Context, f *Call, v *view.View, template *http.Request) (view.Verdict, error) {
	st := v.NewStage(v.Latest(), true)
	defer st.End()
	if err := l.fetch(ctx, st, template); err != nil {
		return view.Outdated, err
	}
	f.To = st.Meta.ResourceVersion
	f.Changed, f.From, f.Events = l.compareWith(v, st)
	verdict := st.Commit(f.To)
	l.Views.Ended(st)
	if verdict == view.Taken {
		l.Views.EndedCopies(st, f.To)
	}
	if verdict != view.Taken { // other streams were faster, or there is no way from there to here
		f.From, f.Events = "", nil
	}
	return verdict, nil
}

// compareWith returns the events that lead from the view's state, as it is between
// two versions, to that of a stage; no version where there are no such events.
func (l *Lister) compareWith(v *view.View, st *view.Stage) (changed, from string, events []byte) {
	old, err := v.Snapshot()
	if err != nil {
		l.Log.Error("cache is damaged", "view", v.String(), "err", err)
	}
	if old == nil {
		return "", "", nil
	}
	defer old.Close()
	if events, err = difference(old, st); err != nil || len(events) > maxDifference {
		return "", "", nil
	}
	return old.Changed, old.Version, events
}
