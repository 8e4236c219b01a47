package relist

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/tee"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/view"
)

// restored makes the cache follow an etcd that was restored from a backup.
//
// Only one observation proves a restore: a consistent list of a view is older than a state that
// the view's clients had received when the list was requested. [view.Builder.Commit] compares the
// two, under the view's lock, because watches update the view at the same time
// (TestEventsOfTwoHistoriesAreNotMixed). Everything else may come from an apiserver that lags
// behind the others, and only leads to such a list:
//
//   - An apiserver answers a list or a watch with a state older than the view: [Lister.Verify].
//   - A watch is to resume above the apiservers' version: [Lister.IsAhead].
//
// An object that was read by GET and is older than its copy replaces this copy and nothing else:
// see [view.View.KeepSingle].
//
// After a restore a version may mean another object. So everything is dropped that is compared
// by version and may be from before: views of this resource, objects read
// by GET, records, and lists that were read in part. [query.UserResource.RestoredWith]
// reports of which users and resources. The caller must list the view again.
func (l *Lister) restored(v *view.View, version string) {
	l.Log.Warn("apiserver's versions have gone back: its store was restored from a backup; the cache follows", "view", v.String(), "version", version)
	back := v.Key.UserResource()
	for _, other := range l.Views.All() {
		if other.Key.UserResource().RestoredWith(back) && (other.Key.Single || other.Key.GVR() == v.Key.GVR()) {
			other.Reset()
		}
	}
	l.Records.Restored(back, version)
	l.Pages.Forget(v.Scope)
}

// Verify is called when an apiserver has returned a state older than the view. It lists the view
// again if no apiserver has a newer one.
func (l *Lister) Verify(v *view.View, template *http.Request) {
	if !l.relisting(v).verify(l.Now()) {
		return
	}
	v.Hold()
	l.Background(func(ctx context.Context) {
		defer v.Release()
		ctx, cancel := withValuesOf(ctx, template)
		defer cancel()
		ahead, err := l.IsAhead(ctx, v, v.Position(), template, l.Now())
		if ahead {
			_, err = l.Relist(v, template, time.Time{}, true)
		}
		if err != nil {
			l.Log.Debug("view could not be compared with the apiservers", "view", v.String(), "err", err)
		}
	})
}

// IsAhead reports whether a version is above the one that the apiservers have at some time after
// the given one. They hold a watch from such a version open without events until they reach it,
// instead of refusing it. template is a request of a client that may list the view.
func (l *Lister) IsAhead(ctx context.Context, v *view.View, version string, template *http.Request, after time.Time) (bool, error) {
	if lost := l.Outages.last(); lost.After(after) {
		after = lost // what an apiserver said before the last outage does not count
	}
	check := l.check(query.VersionSpace(v.Key.GVR().GroupResource()))
	if err := check.running.Acquire(ctx, 1); err != nil {
		return false, err
	}
	defer check.running.Release(1)
	if check.version == "" || check.began.Before(after) {
		began := l.Now()
		current, err := l.currentVersion(ctx, v, template)
		if err != nil { // the reason may be specific to this request
			return false, err
		}
		check.began, check.version = began, current
	}
	return versions.Compare(version, check.version) > 0, nil
}

// versionCheck is the last answer to a request for the apiservers' current version. All watches
// that were lost before it share the answer.
type versionCheck struct {
	running *semaphore.Weighted // held during the request; guards the other fields
	began   time.Time
	version string // empty before the first answer
}

func (l *Lister) check(space string) *versionCheck {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.checks[space] == nil {
		l.checks[space] = &versionCheck{running: semaphore.NewWeighted(1)}
	}
	return l.checks[space]
}

// maxVersionAnswer is larger than any list of one object.
const maxVersionAnswer = 4 << 20

// currentVersion lists one object of a view. The list carries the current version of the
// apiserver's store.
func (l *Lister) currentVersion(ctx context.Context, v *view.View, template *http.Request) (string, error) {
	res, err := l.list(ctx, v, template, url.Values{"limit": {"1"}})
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	var list ListMeta
	d := tee.NewDecoder(v.Repr, res, &list)
	_, err = io.Copy(d, io.LimitReader(res.Body, maxVersionAnswer))
	if err = errors.Join(err, d.Finish()); err != nil {
		return "", err
	}
	if !versions.Valid(list.ResourceVersion) {
		return "", view.ErrNameless
	}
	return list.ResourceVersion, nil
}
