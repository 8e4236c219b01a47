package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/tee"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

const (
	// verifyEvery is the shortest interval between checks because of old answers, for one user and resource.
	verifyEvery = time.Minute
	// answerTime is how long the answer may take.
	answerTime = 10 * time.Second
	// maxVersionAnswer is larger than any list of one object.
	maxVersionAnswer = 4 << 20
)

// checks compare what clients have seen with the apiservers' version, and so find out whether their store was restored from a
// backup.
//
// A store that was restored is at a lower version than before. Apiservers do not say so: they hold a watch above their
// version open without events until they reach it, and then versions mean other objects. So before the first watch
// resumes after an outage, the hub lists one object (limit=1) for the apiservers' current version, and so it does when an
// apiserver has answered a client with a state older than a view. If clients have seen a higher one than that, the store
// was restored; see [view.Views.Restored] for what follows. The hub lists nothing else by itself.
//
// One answer serves all watches that were lost before, but for resources in an etcd of their own it may be too low without a
// restore, and too high to show one: then only a list by a client does.
type checks struct {
	*Options

	mu sync.Mutex
	// last are the last ones, by query.VersionSpace.
	last map[string]*check
	// verified are the last calls of verify, of the last minute.
	verified map[query.UserResource]time.Time
}

func newChecks(o *Options) *checks {
	return &checks{Options: o, last: map[string]*check{}, verified: map[query.UserResource]time.Time{}}
}

// check is the last answer to a request for the apiservers' current version. All watches
// that were lost before it share the answer.
type check struct {
	running *semaphore.Weighted // held during the request; guards the rest
	began   time.Time
	of      query.UserResource // that was listed
	version string             // empty before the first answer
}

// checkOf returns the last check in the version space of a resource.
func (c *checks) checkOf(of query.UserResource) *check {
	space := of.VersionSpace()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last[space] == nil {
		c.last[space] = &check{running: semaphore.NewWeighted(1)}
	}
	return c.last[space]
}

// proves reports whether a version that is too low shows that the store of a resource was restored. The store of another
// resource may be another etcd (--etcd-servers-overrides), or an aggregated apiserver that counts each resource by itself.
func (l *check) proves(of query.UserResource) bool {
	return l.of.Resource == of.Resource && l.of.RestoredWith(of)
}

// seen is what was seen of a view by some time.
type seen struct {
	view  *view.View
	at    time.Time
	began view.Began
}

// see returns what was seen of a view by now.
func (c *checks) see(v *view.View) seen {
	began := v.Began() // before the time: what comes in between is no proof
	return seen{v, time.Now(), began}
}

// isAhead reports whether a version, that a client had by then, is above the one that the apiservers have afterwards: if
// upstream was opened there, it would get no events. If clients had received a version above that one for certain, the
// store was restored, and isAhead calls view.Views.Restored. template is a request of a client that may list the view.
func (c *checks) isAhead(ctx context.Context, by seen, version string, template *http.Request) (bool, error) {
	after := by.at
	if lost := c.Outages.last(); lost.After(after) {
		after = lost // what an apiserver said before the last outage does not count
	}
	current, err := c.current(ctx, by.view, template, after, versions.Higher(version, by.began.Shown()))
	if err != nil {
		return false, err
	}
	c.Views.Restored(by.view, by.began, current)
	return versions.Compare(version, current) > 0, nil
}

// current returns the apiservers' version at some time after the given one. Below least it is that of the view's resource.
func (c *checks) current(ctx context.Context, v *view.View, template *http.Request, after time.Time, least string) (string, error) {
	of := v.Key.UserResource()
	last := c.checkOf(of)
	if err := last.running.Acquire(ctx, 1); err != nil {
		return "", err
	}
	defer last.running.Release(1)
	known := last.version != "" && last.began.After(after)
	if !known || versions.Compare(last.version, least) < 0 && !last.proves(of) {
		began := time.Now()
		current, err := c.list(ctx, v, template)
		if err != nil { // the reason may be specific to this request
			return "", err
		}
		last.began, last.of, last.version = began, of.Clone(), current
	}
	return last.version, nil
}

// verify is called when an apiserver has returned a state older than the view. It asks in the background whether another
// one has a newer state.
func (c *checks) verify(v *view.View, template *http.Request) {
	if !c.isDue(v.Key.UserResource()) {
		return
	}
	v.Hold()
	by := c.see(v)
	started := c.Background(func(ctx context.Context) {
		defer v.Release()
		ctx, cancel := withValuesOf(ctx, template)
		defer cancel()
		if _, err := c.isAhead(ctx, by, "", template); err != nil {
			c.Log.Debug("view could not be compared with the apiservers", "view", v.String(), "err", err)
		}
	})
	if !started {
		v.Release()
	}
}

// isDue reports whether it is time for a verify. Each user has its own time: what one may not list proves nothing.
func (c *checks) isDue(of query.UserResource) bool {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.verified, func(_ query.UserResource, last time.Time) bool { return now.Sub(last).Abs() >= verifyEvery })
	if _, soon := c.verified[of]; soon {
		return false
	}
	c.verified[of.Clone()] = now
	return true
}

// withValuesOf returns a context that ends with ctx, and has the values of a request, which may
// have ended.
func withValuesOf(ctx context.Context, request *http.Request) (context.Context, context.CancelFunc) {
	merged, cancel := context.WithCancel(context.WithoutCancel(request.Context()))
	stop := context.AfterFunc(ctx, cancel)
	return merged, func() {
		stop()
		cancel()
	}
}

// list lists one object of a view, in its representation and with the credentials of template. The list carries the
// current version of the apiserver's store.
func (c *checks) list(ctx context.Context, v *view.View, template *http.Request) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	req := template.Clone(ctx)
	req.Body, req.GetBody = nil, nil
	params := url.Values{"limit": {"1"}}
	if v.Key.Labels != "" {
		params.Set("labelSelector", v.Key.Labels)
	}
	if v.Key.Fields != "" {
		params.Set("fieldSelector", v.Key.Fields)
	}
	req.URL.RawQuery = params.Encode()
	req.Header.Set("Accept", v.Repr(wire.JSON).AcceptList())
	req.Header.Set("Accept-Encoding", "gzip") // the link may be slow
	res, err := c.Up.RoundTrip(req)
	if err != nil {
		return "", fmt.Errorf("list: %w", err)
	}
	defer res.Body.Close()
	if identity.Authenticated(res.StatusCode) {
		if err := c.SameUser(v.Key.User, req); err != nil {
			return "", fmt.Errorf("list: %w", err)
		}
	}
	if res.StatusCode != http.StatusOK {
		if res.StatusCode == http.StatusForbidden {
			c.Views.Deny(&v.Key)
		}
		return "", &refusal{res.StatusCode}
	}
	repr := wire.Answered(req.Header.Get("Accept"), res.Header.Get("Content-Type"))
	var list tee.ListMeta
	d := tee.NewDecoder(repr, res, &list)
	body, err := io.ReadAll(io.LimitReader(res.Body, maxVersionAnswer))
	if err != nil {
		return "", fmt.Errorf("list: %w", err)
	}
	_, err = d.Write(body)
	if err = errors.Join(err, d.Finish()); err != nil {
		return "", fmt.Errorf("%w: %w", errUnusable, err)
	}
	if !versions.Valid(list.ResourceVersion) {
		return "", errUnusable
	}
	return list.ResourceVersion, nil
}

// refusal is a status code other than 200.
type refusal struct{ code int }

func (r *refusal) Error() string {
	return fmt.Sprintf("list: the apiserver answered %d %s", r.code, http.StatusText(r.code))
}

// errUnusable is returned for an answer without a version that can be compared.
var errUnusable = errors.New("list: the answer cannot be read, or has no resourceVersion that is a number")

// isFinal reports whether err is an answer that retries do not change.
func isFinal(err error) bool {
	if errors.Is(err, identity.ErrReassigned) || errors.Is(err, errUnusable) {
		return true
	}
	r, ok := errors.AsType[*refusal](err)
	return ok && r.code < http.StatusInternalServerError && r.code != http.StatusTooManyRequests
}
