package watch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/tee"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// socket is a watch over WebSocket. Its stream has no upstream: what the client gets is not the stream's
// output, but the bytes of the apiserver, and the connection ends when the cloud is lost. The stream only
// learns of the events, before the client gets them.
type socket struct {
	watches *Watches
	query   *query.Query

	mu     sync.Mutex // the request may end while an event is handled
	frames wire.WebSocket
	stream *stream // nil after the request, and if the events cannot be read
	ended  bool    // the request has
}

// KeepSocket keeps a view current from the answer 101 to a watch over WebSocket, which names no
// representation. If the events cannot be read, the view is unknown from the first one on.
func (w *Watches) KeepSocket(res *http.Response, req *http.Request, q *query.Query, sent *view.Moment) {
	s := &socket{watches: w, query: q}
	if repr := wire.Preferred(q.Accept); repr.Encoding == wire.JSON {
		s.stream = w.newStream(withoutUpgrade(req), q, repr, sent.Began(q.Key(repr)))
		s.stream.accepted(s.stream.at)
		context.AfterFunc(req.Context(), s.end)
	}
	tee.Upgraded(res, s.take)
}

// ListFirst returns the error with which a watch over WebSocket is answered whose client has to list before; nil if it
// need not. Its bytes are relayed, so it cannot begin below the version of its client, nor end with an event of the hub's.
func (w *Watches) ListFirst(q *query.Query) error {
	repr := wire.Preferred(q.Accept)
	if repr.Encoding != wire.JSON || !versions.Valid(q.Version) || q.InitialEvents {
		return nil
	}
	key := q.Key(repr)
	v := w.Views.Find(key)
	if v != nil && !v.Lost() && versions.Compare(v.Position(), q.Version) >= 0 {
		return nil
	}
	if w.Views.AskKey(&key) { // an apiserver has not agreed yet: there need not be a view
		w.Expired()
		return expired(q.Version)
	}
	return nil
}

// withoutUpgrade returns the request as one of an HTTP watch: the hub asks for the apiservers' version with its credentials.
func withoutUpgrade(req *http.Request) *http.Request {
	req = req.Clone(req.Context())
	for name := range req.Header {
		if name == "Connection" || name == "Upgrade" || strings.HasPrefix(name, "Sec-Websocket-") {
			delete(req.Header, name)
		}
	}
	return req
}

// take handles what the client gets next.
func (s *socket) take(p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return // nobody gets it
	}
	if s.stream == nil {
		s.watches.Unread(s.query)
		return
	}
	if err := s.frames.Feed(p, s.message); err != nil {
		s.watches.logUnkept(err)
		s.release()
		s.watches.Unread(s.query)
	}
}

// message handles a text message: an event.
func (s *socket) message(text []byte) error {
	frames, err := wire.NewFrameReader(bytes.NewReader(text), s.stream.repr.Encoding)
	for err == nil {
		var f wire.Frame
		if f, err = frames.Next(); err != nil {
			break
		}
		if f.Err != nil {
			return fmt.Errorf("read WebSocket: %w", f.Err)
		}
		if f.Type != "" && f.Type != watch.Error { // after an error there are no events
			s.stream.apply(&f)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (s *socket) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.release()
}

func (s *socket) release() {
	if s.stream != nil {
		s.stream.release()
		s.stream = nil
	}
}

// Unread records that a client has got events that cannot be read: the view of the query is older than what
// the client has seen, and any object may have changed, until they are read again.
func (w *Watches) Unread(q *query.Query) {
	of, highest := q.UserResource(), w.Views.Highest(q.Resource).Version()
	w.Views.Floor(of, versions.Following(highest))
	w.Views.DoubtAll(of, q.Namespace, highest)
	for _, v := range w.Views.Forms(q) {
		v.MarkUnread(versions.Following(highest))
	}
}
