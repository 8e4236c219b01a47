package watch

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/edgehub-io/edgehub/cache/derived"
	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/pause"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// waitUpstream waits until there is output for the client, or an apiserver can be reached.
func (s *stream) waitUpstream() {
	ctx := s.context()
	if s.showDerived() {
		return
	}
	if !time.Now().Before(s.marked.Add(bookmarkEvery)) {
		s.sendBookmark()
		return
	}
	until := s.marked.Add(bookmarkEvery)
	if !s.deadline.IsZero() && s.deadline.Before(until) {
		until = s.deadline
	}
	waitCtx, cancel := context.WithTimeout(ctx, time.Until(until))
	defer cancel()
	err := s.awaitUp(waitCtx)
	if err == nil {
		err = s.resume(waitCtx)
	}
	switch {
	case ctx.Err() != nil:
		s.err = context.Cause(ctx)
	case err != nil && !s.deadline.IsZero() && !time.Now().Before(s.deadline):
		s.err = io.EOF // like an apiserver at the timeout
	}
}

// awaitUp returns nil when an apiserver can be reached. It returns early when derived objects may have
// changed.
func (s *stream) awaitUp(ctx context.Context) error {
	if derived.Shows(s.view) {
		var cancel context.CancelFunc
		ctx, cancel = s.watches.Derived.UntilChange(ctx, s.shown.Seen)
		defer cancel()
	}
	return s.watches.Up.WaitUp(ctx)
}

// sendBookmark sends a bookmark, if the client has requested them and there is a version.
func (s *stream) sendBookmark() {
	s.marked = time.Now()
	if !s.query.Bookmarks || s.at == "" {
		return
	}
	if s.item.Kind == "" {
		s.item = s.view.ItemType()
	}
	if s.item.Kind != "" {
		s.out = wire.AppendBookmark(s.out, s.repr.Encoding, s.item, s.at, false)
	}
}

// resume opens the watch upstream again. It returns only the error of ctx; other failures are retried.
func (s *stream) resume(ctx context.Context) error {
	if err := s.pause(ctx); err != nil {
		return err
	}
	s.retryAfter = s.retry.Step()
	if s.feed.HasEnded() {
		s.expire()
		return nil
	}
	ahead, err := s.isAhead(ctx)
	if err != nil {
		s.watches.Log.Debug("the apiservers' version is not known; the watch is not opened again yet", "watch", s.query.String(), "err", err)
		return nil
	}
	from, list := s.from()
	if ahead || list {
		s.expire()
		return nil
	}
	return s.reopen(ctx, from)
}

// reopen opens the watch upstream.
func (s *stream) reopen(ctx context.Context, from string) error {
	if err := s.watches.resumes.Acquire(ctx, 1); err != nil {
		return err
	}
	defer s.watches.resumes.Release(1)
	res, err := s.watches.Up.RoundTrip(s.request(from))
	if err != nil {
		s.watches.Log.Debug("watch could not be opened again", "watch", s.query.String(), "err", err)
		return ctx.Err()
	}
	s.reopened(res, from)
	return nil
}

// pause waits for the stream's random time within the jitter, and for the backoff.
func (s *stream) pause(ctx context.Context) error {
	now := time.Now()
	if n := s.watches.Outages.Count(); n != s.outage {
		s.outage, s.notBefore, s.unchecked = n, now.Add(pause.Jitter(s.watches.Jitter)), 0
		s.resetRetry()
	}
	after := max(s.notBefore.Sub(now), s.retryAfter)
	if after > 0 && !pause.Sleep(ctx, after) {
		return ctx.Err()
	}
	return nil
}

// resetRetry makes the next attempt to resume the first one: the pauses after it grow from about
// 200 ms to 10 s.
func (l *loss) resetRetry() {
	l.retryAfter = 0
	l.retry = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 2, Steps: math.MaxInt, Cap: 5 * time.Second}
}

// request returns the client's request at a version, and with the remaining timeout.
func (s *stream) request(from string) *http.Request {
	req := s.req.Clone(s.context())
	req.Body, req.GetBody = nil, nil
	params := query.ParamsOf(req) // never Broken: see query.Of
	params.Del("sendInitialEvents")
	params.Del("resourceVersionMatch")
	params.Set("resourceVersion", from)
	if !s.deadline.IsZero() {
		left := int64(time.Until(s.deadline).Seconds()) + 1
		params.Set("timeoutSeconds", strconv.FormatInt(max(left, 1), 10))
	}
	req.URL.RawQuery = params.Encode()
	return req
}

// reopened handles the answer of an apiserver.
func (s *stream) reopened(res *http.Response, from string) {
	code, changed := res.StatusCode, error(nil)
	if identity.Authenticated(code) {
		changed = s.watches.SameUser(s.query.User, s.req)
	}
	switch {
	case errors.Is(changed, identity.ErrReassigned): // the client gets the error when it retries
		s.err = io.EOF
	case changed != nil:
		s.watches.logUnkept(changed) // retried
	case code == http.StatusOK && wire.Answered(s.query.Accept, res.Header.Get("Content-Type")) == s.repr:
		s.resumed = true
		if err := s.attach(res, from); err != nil {
			res.Body.Close()
			s.err = io.EOF
		}
		return
	case code == http.StatusGone:
		s.forgotten(from)
	case code == http.StatusTooManyRequests || code >= http.StatusInternalServerError:
		// Retried.
	default:
		// The client gets the error when it retries: its token may have expired, and it
		// can get a new one.
		if code == http.StatusForbidden || code == http.StatusNotFound {
			s.watches.Views.Deny(&s.view.Key)
		}
		s.err = io.EOF
	}
	res.Body.Close()
}
