package cache

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/wire"
)

// versionCheck is the question at which version the apiservers are after an
// outage. It is asked once for all watches that were lost before.
type versionCheck struct {
	began   time.Time
	done    chan struct{} // closed when the rest is set
	version string
	err     error
}

// newest returns the version at which the apiservers were some time after the given
// one. A watch above it would be held open, in silence, until they get there: they do
// not say that their store was restored from a backup. template is a request of who
// may list the view.
func (c *Cache) newest(ctx context.Context, v *view, template *http.Request, after time.Time) (string, error) {
	for {
		c.past.mu.Lock()
		space := versionSpace(v.key.resource().GroupResource())
		check := c.past.checks[space]
		mine := check == nil || check.began.Before(after)
		if mine {
			check = &versionCheck{began: c.now(), done: make(chan struct{})}
			if c.past.checks == nil {
				c.past.checks = map[string]*versionCheck{}
			}
			c.past.checks[space] = check
		}
		c.past.mu.Unlock()
		if mine {
			check.version, check.err = c.askVersion(ctx, v, template)
			if check.err != nil { // it may be for a reason of this one caller
				c.past.forget(space, check)
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

// verifyEvery is how often at most it is looked whether a view is newer than the
// apiservers.
const verifyEvery = time.Minute

// verify is called when an apiserver has shown a state that is older than the
// view. It may be behind the others; or the store was restored from a backup, and
// then the view has to follow.
func (c *Cache) verify(v *view, template *http.Request) {
	if !v.relisting.verify(c.now()) {
		return
	}
	v.holders.Add(1)
	c.background(func(ctx context.Context) {
		defer v.release()
		newest, err := c.newest(withValuesOf(ctx, template.Context()), v, template, c.now())
		if err == nil && compare(newest, v.position()) < 0 {
			_, err = c.relist(v, template, time.Time{}, true)
		}
		if err != nil {
			c.log.Debug("view could not be compared with the apiservers", "view", v.String(), "err", err)
		}
	})
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

func (p *past) forget(space string, check *versionCheck) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.checks[space] == check {
		delete(p.checks, space)
	}
}

// versionSpace tells apart resources whose versions do not count together: events
// are often in an etcd of their own, and other apiservers behind the aggregator
// have stores of theirs.
func versionSpace(r schema.GroupResource) string {
	switch {
	case r.Resource == "events":
		return "events"
	case !strings.Contains(r.Group, "."), strings.HasSuffix(r.Group, ".k8s.io") && !strings.Contains(r.Group, "metrics"):
		return "" // the apiserver's own
	}
	return r.Group
}

func (of userResource) versionSpace() string { return versionSpace(of.resource.GroupResource()) }

// restoredWith reports whether a resource is restored from a backup together with another
// one. Which server answers in another version space, and what it shows to whom, is not
// known: what one user sees there proves nothing about what others saw.
func (of userResource) restoredWith(other userResource) bool {
	space := of.versionSpace()
	return space == other.versionSpace() && (space == "" || of.user == other.user)
}

// maxVersionAnswer is more than a list of one object takes.
const maxVersionAnswer = 4 << 20

// askVersion asks for one object of a view. The list says at which version the
// apiserver's store is.
func (c *Cache) askVersion(ctx context.Context, v *view, template *http.Request) (string, error) {
	res, err := c.list(ctx, v, template, url.Values{"limit": {"1"}})
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	var found version
	d := newDecoder(v.repr, res, &found)
	_, err = io.Copy(d, io.LimitReader(res.Body, maxVersionAnswer))
	if err = errors.Join(err, d.finish()); err != nil {
		return "", err
	}
	if !isVersion(string(found)) {
		return "", errNameless
	}
	return string(found), nil
}

// version takes of a list nothing but its version.
type version string

func (*version) item([]byte, *wire.Meta) error { return nil }

func (v *version) list(m wire.ListMeta) error {
	*v = version(m.ResourceVersion)
	return nil
}
