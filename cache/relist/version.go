package relist

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/tee"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// versionCheck is a request for the apiservers' current version after an outage. All watches
// that were lost before share it.
type versionCheck struct {
	began   time.Time
	done    chan struct{} // closed when the other fields are set
	version string
	err     error
}

// CurrentVersion returns the apiservers' version at some time after the given one. If their
// store was restored from a backup, they hold a watch above that version open without events
// until they reach it, instead of refusing it. template is a request of a client that may
// list the view.
func (l *Lister) CurrentVersion(ctx context.Context, v *view.View, template *http.Request, after time.Time) (string, error) {
	for {
		l.Outages.mu.Lock()
		space := query.VersionSpace(v.Key.GVR().GroupResource())
		check := l.Outages.checks[space]
		first := check == nil || check.began.Before(after)
		if first {
			check = &versionCheck{began: l.Now(), done: make(chan struct{})}
			if l.Outages.checks == nil {
				l.Outages.checks = map[string]*versionCheck{}
			}
			l.Outages.checks[space] = check
		}
		l.Outages.mu.Unlock()
		if first {
			check.version, check.err = l.askVersion(ctx, v, template)
			if check.err != nil { // the reason may be specific to this request
				l.Outages.forget(space, check)
			}
			close(check.done)
			return check.version, check.err
		}
		select {
		case <-check.done:
			if check.err == nil {
				return check.version, nil
			}
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// verifyEvery is the shortest interval between checks whether a view is newer than the
// apiservers.
const verifyEvery = time.Minute

// Verify is called when an apiserver has returned a state older than the view: either it lags
// behind the others, or the store was restored from a backup, and the view must be listed
// again.
func (l *Lister) Verify(v *view.View, template *http.Request) {
	if !l.relisting(v).verify(l.Now()) {
		return
	}
	v.Hold()
	l.Background(func(ctx context.Context) {
		defer v.Release()
		newest, err := l.CurrentVersion(withValuesOf(ctx, template.Context()), v, template, l.Now())
		if err == nil && versions.Compare(newest, v.Position()) < 0 {
			_, err = l.Relist(v, template, time.Time{}, true)
		}
		if err != nil {
			l.Log.Debug("view could not be compared with the apiservers", "view", v.String(), "err", err)
		}
	})
}

// maxVersionAnswer is larger than any list of one object.
const maxVersionAnswer = 4 << 20

// askVersion lists one object of a view. The list carries the current version of the
// apiserver's store.
func (l *Lister) askVersion(ctx context.Context, v *view.View, template *http.Request) (string, error) {
	res, err := l.list(ctx, v, template, url.Values{"limit": {"1"}})
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	var found version
	d := tee.NewDecoder(v.Repr, res, &found)
	_, err = io.Copy(d, io.LimitReader(res.Body, maxVersionAnswer))
	if err = errors.Join(err, d.Finish()); err != nil {
		return "", err
	}
	if !versions.Valid(string(found)) {
		return "", view.ErrNameless
	}
	return string(found), nil
}

// version is the resourceVersion of a list; it ignores the items.
type version string

func (*version) Item([]byte, *wire.Meta) error { return nil }

func (v *version) List(m wire.ListMeta) error {
	*v = version(m.ResourceVersion)
	return nil
}
