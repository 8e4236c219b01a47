package cache

import (
	"errors"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/edgehub-io/edgehub/cache/overlay"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// settleAfter is how long after the cloud is back a watch goes on with the status that the
// node has reported offline. Objects of which the cloud has sent no event by then are sent
// as they are cached, and a kubelet that gets such an event sends its status again.
const settleAfter = time.Minute

// settleSoon is how long after its client has opened it a watch goes on with such status
// when that was dropped already: events of the cloud that wait for the client come first.
const settleSoon = time.Second

// heldStatus is which of the node's own status a watch has shown: level-triggered, so
// that it costs one small record for each object, however often its status changes.
type heldStatus struct {
	source   *source // what an offline watch is answered from; nil before
	looked   uint64  // the overlay's revision when it was last looked at
	revision uint64  // up to which everything has been shown
	shown    map[string]shownStatus
	settled  bool // what was shown has been put right, and there was no loss since

	settle *time.Timer  // while upstream is there and something was shown
	due    *atomic.Bool // set when it fires
}

// shownStatus is the last of an object that a watch has shown, by member name.
type shownStatus struct {
	update  *overlay.Update
	present bool // false after DELETED
}

func (h *heldStatus) note(name string, u *overlay.Update, present bool) {
	if h.shown == nil {
		h.shown = map[string]shownStatus{}
	}
	h.shown[name] = shownStatus{u, present}
}

// overtaken is called when the client gets an event of the cloud's about an object.
func (h *heldStatus) overtaken(name string) {
	if delete(h.shown, name); len(h.shown) == 0 {
		h.stopSettling()
	}
}

func (h *heldStatus) stopSettling() {
	if h.settle != nil {
		h.settle.Stop()
	}
}

// noteAll notes what initial events will have shown.
func (h *heldStatus) noteAll(s *statusOf) {
	for name, u := range s.shown {
		h.note(name, u, true)
	}
	for name, u := range s.left {
		h.note(name, u, false)
	}
}

// statusSource is where the stream's objects are found, or nil. A view that is older than
// the client is none, as after a kill of the hub: the client may have newer objects.
func (s *stream) statusSource() *source {
	if !s.view.showsStatus() {
		return nil
	}
	for _, src := range []*source{{s.view, s.repr}, s.held.source} {
		if src != nil && src.view.usable() {
			if compare(src.view.position(), s.at) < 0 {
				return nil
			}
			return src
		}
	}
	return nil
}

// showStatus puts the node's own status into out as far as the client has not got it. It
// returns false if there is nothing new. A bookmark follows, because the objects have
// versions from before: clients take an event's version for how far they are.
func (s *stream) showStatus() bool {
	o := s.cache.writes.overlay
	revision := o.Revision()
	if revision == s.held.revision {
		return false
	}
	s.held.looked = revision
	if s.held.settled && s.cache.isUp() {
		return false
	}
	s.held.settled = false
	src := s.statusSource()
	if src == nil {
		return false
	}
	for _, u := range s.cache.statusUpdates(src.view) {
		if len(s.out) >= maxBuffered {
			return true // the rest when this has been sent
		}
		s.showUpdate(src, u)
	}
	s.held.revision = revision
	if len(s.out) > 0 {
		s.mark()
	}
	return len(s.out) > 0
}

func (s *stream) showUpdate(src *source, u *overlay.Update) {
	before, known := s.held.shown[memberName(u.Key.Namespace, u.Key.Name)]
	if known && before.update.Revision == u.Revision {
		return
	}
	p, ok := s.cache.place(src.view, u)
	if !ok || p.member && compare(p.entry.version, s.at) > 0 {
		return // the client does not have this object yet
	}
	there := p.member
	if known {
		there = before.present
	}
	s.held.note(p.name, u, p.fits)
	if there || p.fits {
		s.showObject(src, eventFor(there, p.fits), u, p.bare)
	}
}

// eventFor is the type of the event for an object that a client had, or not, and has, or not.
func eventFor(before, after bool) watch.EventType {
	switch {
	case !after:
		return watch.Deleted
	case before:
		return watch.Modified
	}
	return watch.Added
}

// showObject puts an event about an updated object into out; without an update, about the
// object as it is cached.
func (s *stream) showObject(src *source, kind watch.EventType, u *overlay.Update, bare []byte) {
	var err error
	if u != nil {
		bare, err = src.shown(u, bare)
	} else {
		bare, err = src.object(bare)
	}
	if err != nil {
		s.cache.log.Error("status of the node cannot be shown to a watch", "watch", s.query.String(), "err", err)
		return
	}
	if s.item.Kind == "" {
		s.item = src.itemType()
	}
	s.out = wire.AppendEvent(s.out, s.repr.Encoding, kind, s.item, bare)
}

// settleLater has the upstream that was just attached broken off after a while, if the
// client may have seen status that the cloud does not have. It is opened again at once,
// after settleStatus has put that right. Any event about an object puts it right, too.
func (s *stream) settleLater() {
	if !s.resumed && s.at != "" && s.view.showsStatus() {
		for _, u := range s.cache.writes.overlay.Recent() { // the client may have listed while there was no cloud
			name := memberName(u.Key.Namespace, u.Key.Name)
			if e, ok := s.view.member(name); ok && compare(e.version, u.ResourceVersion) <= 0 {
				s.held.note(name, u, true)
			}
		}
	}
	if s.held.stopSettling(); len(s.held.shown) == 0 {
		return
	}
	after := settleAfter
	if !s.resumed && s.cache.writes.overlay.Len() == 0 {
		after = settleSoon // a client may open no watch that lasts for longer
	}
	body, due := s.upstream, &atomic.Bool{}
	s.held.due = due
	s.held.settle = time.AfterFunc(after, func() {
		due.Store(true)
		_ = body.Close() // who reads it sees it
	})
}

// isSettling reports whether upstream was broken off by settleLater.
func (s *stream) isSettling() bool { return s.held.due != nil && s.held.due.Load() }

// settleStatus puts what is cached of the objects whose status was shown into out. It
// returns false if there is nothing to send.
func (s *stream) settleStatus() bool {
	src := s.statusSource()
	if !s.isSettling() || !s.cache.isUp() || src == nil {
		s.held.due = nil
		return false
	}
	for name, last := range s.held.shown {
		if len(s.out) >= maxBuffered {
			return true
		}
		delete(s.held.shown, name)
		s.settleObject(src, name, last)
	}
	s.held.due = nil
	s.held.settled, s.held.revision = true, 0 // the overlay is shown anew after a loss
	if len(s.out) > 0 {
		s.mark()
	}
	return len(s.out) > 0
}

func (s *stream) settleObject(src *source, name string, last shownStatus) {
	e, ok := src.view.member(name)
	if !ok {
		if last.present {
			s.showObject(src, watch.Deleted, last.update, nil)
		}
		return
	}
	if compare(e.version, s.at) > 0 {
		return // it comes from upstream
	}
	bare, err := src.view.read(name, e)
	if err != nil {
		s.err = errors.Join(err, s.err)
		return
	}
	s.showObject(src, eventFor(last.present, true), nil, bare)
}
