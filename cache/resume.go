package cache

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/edgehub-io/edgehub/cache/wire"
)

// hold waits until there is something for the client, or an apiserver again.
func (s *stream) hold() {
	ctx := s.context()
	if s.cache.now().After(s.marked.Add(bookmarkEvery)) {
		s.mark()
		return
	}
	until := s.marked.Add(bookmarkEvery)
	if !s.deadline.IsZero() && s.deadline.Before(until) {
		until = s.deadline
	}
	wait, cancel := context.WithTimeout(ctx, until.Sub(s.cache.now()))
	defer cancel()
	err := s.cache.up.WaitUp(wait)
	if err == nil {
		err = s.resume(wait)
	}
	switch {
	case ctx.Err() != nil:
		s.err = context.Cause(ctx)
	case err != nil && !s.deadline.IsZero() && !s.cache.now().Before(s.deadline):
		s.err = io.EOF // as an apiserver would end it
	}
}

// mark sends the client a bookmark, if it takes them and there is a version.
func (s *stream) mark() {
	s.marked = s.cache.now()
	if !s.query.bookmarks || s.at == "" {
		return
	}
	if s.item.Kind == "" {
		s.item = s.view.itemType()
	}
	if s.item.Kind != "" {
		s.out = wire.AppendBookmark(s.out, s.repr.Encoding, s.item, s.at, false)
	}
}

// resume opens the watch upstream where the client is. Its error is that of ctx;
// whatever else goes wrong is tried again.
func (s *stream) resume(ctx context.Context) error {
	if err := s.pause(ctx); err != nil {
		return err
	}
	s.tries++
	gone := s.overtaken(ctx)
	if !gone {
		var err error
		if gone, err = s.reopen(ctx); err != nil {
			return err
		}
	}
	if gone {
		s.relist()
	}
	return nil
}

// reopen reports that an apiserver does not know any more what came after the
// version at which the client is.
func (s *stream) reopen(ctx context.Context) (gone bool, err error) {
	if err := s.cache.resumes.acquire(ctx); err != nil {
		return false, err
	}
	defer s.cache.resumes.release()
	res, err := s.cache.up.RoundTrip(s.request())
	if err != nil {
		s.cache.log.Debug("watch could not be opened again", "watch", s.query.String(), "err", err)
		return false, ctx.Err()
	}
	return s.reopened(res), nil
}

// pause spreads the watches that are opened again after an outage.
func (s *stream) pause(ctx context.Context) error {
	wait := backoff(s.tries - 1)
	if s.tries == 0 {
		wait = 0
		if n := s.cache.past.count(); n != s.outage {
			s.outage, wait = n, jitter(s.cache.opts.ReconnectJitter)
		}
	}
	if wait > 0 && !sleep(ctx, wait) {
		return ctx.Err()
	}
	return nil
}

// request is the client's, from where the client is now.
func (s *stream) request() *http.Request {
	req := s.req.Clone(s.context())
	req.Body, req.GetBody = nil, nil
	query, _ := url.ParseQuery(req.URL.RawQuery) // it was parsed before
	query.Del("sendInitialEvents")
	query.Del("resourceVersionMatch")
	query.Set("resourceVersion", s.at)
	if !s.deadline.IsZero() {
		left := int64(s.deadline.Sub(s.cache.now()).Seconds()) + 1
		query.Set("timeoutSeconds", strconv.FormatInt(max(left, 1), 10))
	}
	req.URL.RawQuery = query.Encode()
	return req
}

// reopened looks at what an apiserver answered.
func (s *stream) reopened(res *http.Response) (gone bool) {
	switch code := res.StatusCode; {
	case code == http.StatusOK && wire.Answered(s.query.accept, res.Header.Get("Content-Type")) == s.repr:
		s.resumed = true
		if err := s.attach(res); err != nil {
			res.Body.Close()
			s.err = io.EOF
		}
		return false
	case code == http.StatusGone:
		gone = true
	case code == http.StatusTooManyRequests || code >= http.StatusInternalServerError:
		// It is tried again.
	default:
		// The client finds out for itself: its token may have expired, and it
		// knows how to get another.
		s.err = io.EOF
	}
	res.Body.Close()
	return gone
}

// relist brings the client to a version from which upstream can go on, by events
// if that is possible.
func (s *stream) relist() {
	f, err := s.cache.relist(s.view, s.req, s.lostAt, false)
	if err == nil {
		select {
		case <-f.done:
			err = f.err
		case <-s.context().Done():
			return
		}
	}
	if final(err) { // the client finds out for itself
		s.err = io.EOF
		return
	}
	if err != nil {
		s.cache.log.Debug("view could not be listed, for a watch to go on; it is tried again", "watch", s.query.String(), "err", err)
		return
	}
	if !s.follows(f) {
		s.expire()
		return
	}
	s.out = append(s.out, f.events...)
	s.at = f.to
	s.mark()
	s.tries, s.suspect = 0, false
}

// follows reports whether a list's events lead on from where the client is.
func (s *stream) follows(f *flight) bool {
	return f.from != "" && compare(f.changed, s.at) <= 0 && compare(s.at, f.from) <= 0
}

// overtaken reports whether it is known already that upstream cannot go on from
// here: another watch of this view has found out, or the apiservers' store is
// older than what the client has seen.
func (s *stream) overtaken(ctx context.Context) bool {
	if f := s.view.relisting.ended(s.lostAt); f != nil && s.follows(f) && compare(s.at, f.to) != 0 {
		return true
	}
	if !s.suspect {
		return false
	}
	newest, err := s.cache.newest(ctx, s)
	return err == nil && compare(s.at, newest) > 0
}

// ended returns a list that has ended after a time, or nil.
func (r *relisting) ended(after time.Time) *flight {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		return nil
	}
	select {
	case <-r.last.done:
		if r.last.err == nil && r.last.ended.After(after) {
			return r.last
		}
	default:
	}
	return nil
}

// versionCheck is the question at which version the apiservers are after an
// outage. It is asked once for all watches that were lost before.
type versionCheck struct {
	began   time.Time
	done    chan struct{} // closed when the rest is set
	version string
	err     error
}

// newest returns the version at which the apiservers were some time after s was lost.
// A watch above it would be held open, in silence, until they get there: they do
// not say that their store was restored from a backup.
func (c *Cache) newest(ctx context.Context, s *stream) (string, error) {
	c.past.mu.Lock()
	check := c.past.check
	first := check == nil || check.began.Before(s.lostAt)
	if first {
		check = &versionCheck{began: c.now(), done: make(chan struct{})}
		c.past.check = check
	}
	c.past.mu.Unlock()
	if first {
		check.version, check.err = c.askVersion(ctx, s)
		if check.err != nil { // the next one asks again
			c.past.forget(check)
		}
		close(check.done)
	}
	select {
	case <-check.done:
		return check.version, check.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (p *past) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.outages
}

func (p *past) forget(check *versionCheck) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.check == check {
		p.check = nil
	}
}

// maxVersionAnswer is more than a list of one object takes.
const maxVersionAnswer = 4 << 20

// askVersion asks for one object of the stream's view. The list says at which
// version the apiserver's store is.
func (c *Cache) askVersion(ctx context.Context, s *stream) (string, error) {
	res, err := c.list(withValuesOf(ctx, s.context()), s.view, s.req, url.Values{"limit": {"1"}})
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	var found version
	d := newDecoder(s.repr, res, &found)
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

// itemType is the type of the view's objects, if it is known.
func (v *view) itemType() wire.TypeMeta {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.header.Kind == "" {
		return wire.TypeMeta{}
	}
	if v.key.Single {
		return wire.TypeMeta{APIVersion: v.header.APIVersion, Kind: v.header.Kind}
	}
	m := wire.ListMeta{TypeMeta: wire.TypeMeta{APIVersion: v.header.APIVersion, Kind: v.header.Kind}}
	return itemType(&m, v.header.Item)
}

// invalidate notes that the view's state is not known any more.
func (v *view) invalidate() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.dropLocked()
}
