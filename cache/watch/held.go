package watch

import (
	"errors"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/edgehub-io/edgehub/cache/offline"
	"github.com/edgehub-io/edgehub/cache/overlay"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// SettleAfter is how long after the return of the cloud a watch keeps showing the status that
// the node has reported offline. Then it sends the cached state of objects for which the
// cloud has sent no event: a kubelet that gets it reports its status again.
const SettleAfter = time.Minute

// settleSoon replaces SettleAfter for a watch that was opened after the overlay was dropped:
// long enough for pending events of the cloud to come first.
const settleSoon = time.Second

// heldStatus records which of the node's own status a watch has shown. It is level-triggered:
// one small record for each object, however often its status changes.
type heldStatus struct {
	source   *offline.Source // of a watch that was opened offline; nil otherwise
	looked   uint64          // the overlay's revision at the last check
	revision uint64          // the overlay's revision that has been shown completely
	shown    map[string]shownStatus
	settled  bool // the status was reverted, and the cloud was not lost since

	stop func()       // while relaying, if status was shown: stops what will set due
	due  *atomic.Bool // set when it is time to revert what was shown
}

// shownStatus is the last status of an object that a watch has shown.
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

// overtaken is called when the client gets an event of the cloud for an object.
func (h *heldStatus) overtaken(name string) {
	if delete(h.shown, name); len(h.shown) == 0 {
		h.stopSettling()
	}
}

func (h *heldStatus) stopSettling() {
	if h.stop != nil {
		h.stop()
		h.stop = nil
	}
}

// noteAll records the status that the initial events show.
func (h *heldStatus) noteAll(s *offline.Status) {
	for name, u := range s.Shown {
		h.note(name, u, true)
	}
	for name, u := range s.Left {
		h.note(name, u, false)
	}
}

// statusSource returns the source of the stream's objects, or nil. A view that is older than
// the client's version is not used (after a kill of the hub, for example): the client may
// have newer objects. One that is only older than what other clients have seen is.
func (s *stream) statusSource() *offline.Source {
	if !offline.ShowsStatus(s.view) {
		return nil
	}
	for _, src := range []*offline.Source{{View: s.view, Repr: s.repr}, s.held.source} {
		if src != nil && !src.View.Denied() && src.View.Position() != "" && versions.Compare(src.View.Position(), s.at) >= 0 {
			return src
		}
	}
	return nil
}

// showStatus writes events for status of the node that the client does not have. It returns
// false if there is none. A bookmark follows, because clients resume from the version of the
// last event, and the objects have old versions.
func (s *stream) showStatus() bool {
	o := s.watches.Overlay
	revision := o.Revision()
	if revision == s.held.revision {
		return false
	}
	s.held.looked = revision
	if s.held.settled && s.watches.IsUp() || offline.ShowsEndpoints(s.view) && !s.isAway() {
		return false
	}
	s.held.settled = false
	src := s.statusSource()
	if src == nil {
		return false
	}
	updates := s.watches.Answers.StatusUpdates(src.View)
	for _, u := range updates {
		if len(s.out) >= maxBuffered {
			return true // the rest at the next call
		}
		s.showUpdate(src, u)
	}
	if offline.ShowsEndpoints(s.view) {
		s.revertExcept(src, updates)
	}
	s.held.revision = revision
	if len(s.out) > 0 {
		s.sendBookmark()
	}
	return len(s.out) > 0
}

func (s *stream) showUpdate(src *offline.Source, u *overlay.Update) {
	before, known := s.held.shown[query.MemberName(u.Key.Namespace, u.Key.Name)]
	if known && before.update.Revision == u.Revision {
		return
	}
	p, ok := s.watches.Answers.Place(src, u)
	if !ok || p.Member && versions.Compare(p.Version, s.at) > 0 {
		return // the client does not have this object yet
	}
	there := p.Member
	if known {
		there = before.present
	}
	s.held.note(p.Name, u, p.Fits)
	if there || p.Fits {
		s.showObject(src, eventFor(there, p.Fits), u, p.Bare)
	}
}

// eventFor returns the type of the event for an object that the client had before, or has after.
func eventFor(before, after bool) watch.EventType {
	switch {
	case !after:
		return watch.Deleted
	case before:
		return watch.Modified
	}
	return watch.Added
}

// showObject writes an event for an object with an update, or, without one, as it is cached.
func (s *stream) showObject(src *offline.Source, kind watch.EventType, u *overlay.Update, bare []byte) {
	var err error
	if u != nil {
		bare, err = src.Shown(u, bare)
	} else {
		bare, err = src.Object(bare)
	}
	if err != nil {
		s.watches.Log.Error("status of the node cannot be shown to a watch", "watch", s.query.String(), "err", err)
		return
	}
	if s.item.Kind == "" {
		s.item = src.ItemType()
	}
	s.out = wire.AppendEvent(s.out, s.repr.Encoding, kind, s.item, bare)
}

// settleLater closes the upstream that was just attached after a while, if the client may
// have seen status that the cloud does not have. settleStatus then reverts it, and the stream
// resumes at once. An event of the cloud for an object reverts its status, too.
func (s *stream) settleLater() {
	if s.unsure && offline.ShowsStatus(s.view) {
		for _, u := range s.recent() { // the client may have listed offline, or watched the last process
			name := query.MemberName(u.Key.Namespace, u.Key.Name)
			_, known := s.held.shown[name]
			if e, ok := s.view.Member(name); ok && !known && versions.Compare(e.Version, u.ResourceVersion) <= 0 {
				s.held.note(name, u, true)
			}
		}
	}
	s.unsure = false
	s.held.stopSettling()
	if offline.ShowsEndpoints(s.view) {
		s.settleEndpoints()
		return
	}
	if len(s.held.shown) == 0 {
		return
	}
	after := SettleAfter
	if !s.resumed && s.watches.Overlay.Len() == 0 {
		after = settleSoon // the client's watches may all be shorter than SettleAfter
	}
	body, due := s.upstream, &atomic.Bool{}
	s.held.due = due
	timer := time.AfterFunc(after, func() {
		due.Store(true)
		_ = body.Close() // ends the Read of relay
	})
	s.held.stop = func() { timer.Stop() }
}

// recent returns the updates that a client of the view may have seen.
func (s *stream) recent() []*overlay.Update {
	if offline.ShowsEndpoints(s.view) {
		return s.watches.Answers.Endpoints.Recent(s.view, s.at)
	}
	return s.watches.Overlay.Recent()
}

// isSettling reports whether settleLater has closed upstream.
func (s *stream) isSettling() bool { return s.held.due != nil && s.held.due.Load() }

// settleStatus writes events with the cached state of objects whose status was shown. It
// returns false if there are none.
func (s *stream) settleStatus() bool {
	src := s.statusSource()
	if !s.isSettling() || !s.watches.IsUp() || src == nil {
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
	s.held.settled, s.held.revision = true, 0 // show the overlay again after a loss
	if len(s.out) > 0 {
		s.sendBookmark()
	}
	return len(s.out) > 0
}

func (s *stream) settleObject(src *offline.Source, name string, last shownStatus) {
	e, ok := src.Member(name)
	if !ok {
		if last.present {
			s.showObject(src, watch.Deleted, last.update, nil)
		}
		return
	}
	if versions.Compare(e.Version, s.at) > 0 {
		return // upstream will send it
	}
	bare, err := src.View.Read(name, e)
	if err != nil {
		s.err = errors.Join(err, s.err)
		return
	}
	s.showObject(src, eventFor(last.present, true), nil, bare)
}
