package relist

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/records"
	"github.com/edgehub-io/edgehub/cache/tee"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

const (
	// maxLists is how many views are listed at once by the hub itself.
	maxLists = 2
	// timeout is how long a list may take that the hub asks for itself. Over
	// a link of 1 Mbit/s 20 MB take three minutes.
	timeout = 15 * time.Minute
	// Open watches that need their view listed wait after the last list: first for
	// as long as backoff says, and up to maxRelistPause if that happens again and
	// again, because the disk is full, say. After relistCalm without they may ask
	// at once again.
	MaxPause = 5 * time.Minute
	Calm     = 10 * time.Minute
	// maxDifference bounds the bytes of events that stand for a list. Where there
	// are more, clients are told to list again.
	maxDifference = 16 << 20
)

// Lister lists views again that their watches have got ahead of, and has views follow the
// apiservers. It is safe for concurrent use. mu is
// taken before the locks of views and of what it guards, and after that of evictions.
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

// Bar keeps open watches from having a view listed for some time.
func (l *Lister) Bar(v *view.View) { l.relisting(v).bar(l.Now()) }

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
		r.tidy(l.Now())
		if l.Views.Find(v.Key) != v {
			delete(l.of, v)
		}
	}
}

// relisting makes sure that a view is listed once, whoever needs it.
type relisting struct {
	mu     sync.Mutex
	last   *Call
	tries  int // gentle ones, in a row
	bars   int // in a row
	barred time.Time
	// verified is when the view was last compared with the apiservers.
	verified time.Time
}

const (
	// A view that was evicted, or that cannot be kept for a reason that does not
	// pass, is left alone for firstBar, twice as long the next time, and so on.
	FirstBar = 10 * time.Minute
	LastBar  = 6 * time.Hour
)

// bar keeps open watches from having the view listed for some time.
func (r *relisting) bar(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.barred = now.Add(min(FirstBar<<min(r.bars, 16), LastBar))
	r.bars++
}

// tidy lets go of a list that nobody can need any more.
func (r *relisting) tidy(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		return
	}
	select {
	case <-r.last.Done:
		if now.Sub(r.last.ended).Abs() > Calm {
			r.last, r.tries = nil, 0
		}
	default:
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

// errBarred is returned where a view is not to be listed now.
var errBarred = errors.New("it was evicted, or listing it has just failed")

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
		return nil, errBarred
	}
	f := &Call{Done: make(chan struct{})}
	r.last = f
	v.Hold()
	started := l.Background(func(ctx context.Context) {
		defer v.Release()
		f.Err = l.fly(ctx, f, v, template)
		f.ended = l.Now()
		close(f.Done)
		if IsPermanent(f.Err) {
			r.bar(f.ended)
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

// allowedLocked counts the lists that open watches ask for.
func (r *relisting) allowedLocked(now time.Time) bool {
	if now.Before(r.barred) {
		return false
	}
	if r.last != nil {
		pause := min(time.Second<<min(r.tries, 20), MaxPause)
		switch since := now.Sub(r.last.ended).Abs(); {
		case since > Calm:
			r.tries = 0
		case r.tries > 0 && since < pause:
			return false
		}
	}
	r.tries++
	return true
}

// fly lists the view, works out the difference, and commits.
func (l *Lister) fly(ctx context.Context, f *Call, v *view.View, template *http.Request) error {
	if err := l.lists.Acquire(ctx, 1); err != nil {
		return err
	}
	defer l.lists.Release(1)
	ctx, cancel := context.WithTimeout(withValuesOf(ctx, template.Context()), timeout)
	defer cancel()

	l.Relisted()
	v.CountLists(1)
	defer v.CountLists(-1)
	verdict, err := l.flyOnce(ctx, f, v, template)
	if err == nil && verdict == view.Restored {
		// Versions name other objects now: nothing may be taken for known.
		l.restored(v, f.To)
		_, err = l.flyOnce(ctx, f, v, template)
		f.From, f.Events = "", nil
	}
	if err == nil && !l.Views.Fit(v) {
		return fmt.Errorf("list: %w: it takes more than --cache-max-bytes alone", errUnfit)
	}
	return err
}

func (l *Lister) flyOnce(ctx context.Context, f *Call, v *view.View, template *http.Request) (view.Verdict, error) {
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

// values are those of a request whose sender may be gone.
type values struct {
	context.Context
	of context.Context
}

func withValuesOf(ctx, of context.Context) context.Context { return values{ctx, of} }

func (v values) Value(key any) any {
	if value := v.Context.Value(key); value != nil {
		return value
	}
	return v.of.Value(key)
}

// fetch lists a stage's view from upstream.
func (l *Lister) fetch(ctx context.Context, st *view.Stage, template *http.Request) error {
	res, err := l.list(ctx, st.View, template, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	d := tee.NewDecoder(st.View.Repr, res, st)
	_, err = io.Copy(tee.Strict{Decoder: d}, res.Body)
	if err != nil && d.Failed == nil {
		return fmt.Errorf("list: %w", errors.Join(err, d.Stop(err)))
	}
	if err := d.Finish(); err != nil {
		return fmt.Errorf("list: %w: %w", errUnfit, err)
	}
	if st.Meta.Continue != "" || !versions.Valid(st.Meta.ResourceVersion) {
		return fmt.Errorf("list: %w: the answer is a page at version %q, where all was asked for", errUnfit, st.Meta.ResourceVersion)
	}
	return nil
}

// list asks upstream for all of a view, in its representation and with the
// credentials of template.
func (l *Lister) list(ctx context.Context, v *view.View, template *http.Request, more url.Values) (*http.Response, error) {
	req := template.Clone(ctx)
	req.Body, req.GetBody = nil, nil
	query := url.Values{}
	if v.Key.Labels != "" {
		query.Set("labelSelector", v.Key.Labels)
	}
	if v.Key.Fields != "" {
		query.Set("fieldSelector", v.Key.Fields)
	}
	for name, value := range more {
		query[name] = value
	}
	req.URL.RawQuery = query.Encode()
	req.Header.Set("Accept", AcceptOf(v.Repr))
	req.Header.Set("Accept-Encoding", "gzip") // the link is thin
	res, err := l.Up.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	if identity.Authenticated(res.StatusCode) {
		if err := l.StillOf(v.Key.User, req); err != nil {
			res.Body.Close()
			return nil, fmt.Errorf("list: %w", err)
		}
	}
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		if res.StatusCode == http.StatusForbidden {
			l.Views.Deny(&v.Key)
		}
		return nil, &refusal{res.StatusCode}
	}
	if got := wire.Answered(req.Header.Get("Accept"), res.Header.Get("Content-Type")); got != v.Repr {
		res.Body.Close()
		return nil, fmt.Errorf("list: %w: the apiserver answered in %q, not %s", errUnfit, res.Header.Get("Content-Type"), v.Repr)
	}
	return res, nil
}

// refusal is an answer other than 200.
type refusal struct{ code int }

func (r *refusal) Error() string {
	return fmt.Sprintf("list: the apiserver answered %d %s", r.code, http.StatusText(r.code))
}

// IsFinal reports whether err is a refusal that trying again does not change.
func IsFinal(err error) bool {
	var r *refusal
	return errors.Is(err, identity.ErrReassigned) || errors.As(err, &r) && r.code < http.StatusInternalServerError && r.code != http.StatusTooManyRequests
}

// AcceptOf asks for lists in a representation.
func AcceptOf(r wire.Representation) string {
	if r.Metadata == "" {
		return r.Encoding.MediaType()
	}
	return r.Encoding.MediaType() + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=" + r.Metadata
}

// Commit makes a list, the answer to a query, the state of its view. template is a request
// whose sender may read the view.
func (l *Lister) Commit(q *query.Query, template *http.Request, st *view.Stage, version string) {
	v := st.View
	if !st.Consistent {
		l.Views.Outdo(q, v)
	}
	verdict := st.Commit(version)
	l.Views.Ended(st)
	if verdict == view.Taken {
		l.Views.EndedCopies(st, version)
	}
	switch verdict {
	case view.Restored:
		l.restored(v, version)
		l.Refresh(v, template)
	case view.Outdated:
		if !st.Consistent {
			l.Verify(v, template)
		}
	case view.Taken:
		if v.Behind() { // an apiserver that is behind another answered, from its memory
			l.Refresh(v, template)
		}
	}
	if !l.Views.Fit(v) {
		l.Log.Warn("not kept: it takes more than --cache-max-bytes alone", "view", v.String(), "max", l.Max)
	}
}

// restored is called when a view turned out to be newer than the apiservers.
// Versions may name other objects from now on, so everything goes that is compared
// by them: views of the same resource, and what was read one by one from the same store.
func (l *Lister) restored(v *view.View, version string) {
	l.Log.Warn("apiserver's versions have gone back: its store was restored from a backup; the cache follows", "view", v.String(), "version", version)
	back := v.Key.UserResource()
	for _, other := range l.Views.All() {
		if other.Key.UserResource().RestoredWith(back) && (other.Key.Single || other.Scope == v.Scope) {
			other.StartOver()
		}
	}
	l.Records.Restored(back, version)
	l.Pages.Forget(v.Scope)
}

// ended returns a list that has ended after a time, or nil.
func (r *relisting) ended(after time.Time) *Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		return nil
	}
	select {
	case <-r.last.Done:
		if r.last.Err == nil && r.last.ended.After(after) {
			return r.last
		}
	default:
	}
	return nil
}

// verify reports whether it is time to look again.
func (r *relisting) verify(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.verified).Abs() < verifyEvery {
		return false
	}
	r.verified = now
	return true
}
