package transform

import (
	"net/http"
	"strconv"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/edgehub-io/edgehub/cache/wire"
	"github.com/edgehub-io/edgehub/proxy/topology"
)

// follow filters the events of a watch, and has it follow changes of the topology.
func (a *answer) follow(r *http.Request, res *http.Response) error {
	frames, err := a.pump(res)
	if err != nil {
		return err
	}
	info, _ := request.RequestInfoFrom(r.Context())
	query := r.URL.Query()
	f := &followed{
		answer: a, request: r, pump: frames,
		bookmarks: query.Get("allowWatchBookmarks") == "true" || query.Get("allowWatchBookmarks") == "1",
		initial:   query.Get("sendInitialEvents") == "true" || query.Get("sendInitialEvents") == "1",
		dropped:   map[types.NamespacedName]bool{},
		resends:   resends{pending: topology.Set{}, lists: rate.NewLimiter(rate.Every(resendEvery), resendBurst)},
	}
	if info.Resource == "services" {
		f.resource = topology.Services
	}
	f.resume(query.Get("resourceVersion"))
	res.Body = f
	go f.run()
	return nil
}

// followed is the body of a watch that is filtered, and that follows the topology: when
// something else is decided for a Service, its objects are listed, and sent as they are to be
// read now. It is for one reader at a time; Close may be called beside it.
type followed struct {
	*pump

	answer   *answer
	request  *http.Request
	resource topology.Resource

	bookmarks bool // the client wants them
	initial   bool // the initial events have not ended
	within    bool // an event that comes in pieces has begun
	position  uint64
	resumed   string // the version from which the client watches, until its objects are checked
	unknown   bool   // what the client has read before

	resends
	dropped map[types.NamespacedName]bool // what the client does not have

	buf   []byte
	ready []byte // of buf: not read yet
	err   error  // after ready
}

// resends are the Services whose objects have to be sent again, and when.
type resends struct {
	changed <-chan struct{} // of the topology
	retry   <-chan time.Time
	lists   *rate.Limiter // of their objects
	pending topology.Set
}

// A watch causes one list every resendEvery on average, and resendBurst of them at once, so that what an
// admin changes now and then is there at once. Whoever may write one Service can change its annotation
// many times a second, and causes a list on every node.
const (
	resendEvery = 10 * time.Second
	resendBurst = 3
)

// Read returns what belongs to at most one event or change, so that it is flushed at once.
func (f *followed) Read(p []byte) (int, error) {
	for len(f.ready) == 0 {
		if f.err != nil {
			return 0, f.err
		}
		f.next()
	}
	n := copy(p, f.ready)
	f.ready = f.ready[n:]
	return n, nil
}

func (f *followed) next() {
	f.buf = f.buf[:0]
	changed := f.changed
	if f.initial || f.within {
		changed = nil
	}
	select {
	case next := <-f.frames:
		if f.err = next.err; f.err == nil {
			f.frame(&next.Frame)
			f.used()
		}
	case <-changed:
		f.follow()
	case <-f.retry:
		f.follow()
	case <-f.closed:
		f.err = http.ErrBodyReadAfterClose
	}
	f.ready = f.buf
	const kept = 64 << 10
	if cap(f.buf) > kept {
		f.buf = nil
	}
}

// resume prepares a watch that begins at a version. One that begins with the present state has
// nothing to make up for.
func (f *followed) resume(version string) {
	closed := make(chan struct{})
	close(closed)
	f.changed = closed // looks at once
	if f.initial || version == "" || version == "0" {
		return
	}
	f.resumed = version
	f.position, _ = strconv.ParseUint(version, 10, 64)
}

// follow sends the objects of Services for which something else is decided now.
func (f *followed) follow() {
	state := f.answer.transport.opts.Topology
	f.retry = nil
	changes, generation, next := state.Changes(f.resource, f.answer.generation)
	f.changed, f.answer.generation = next, generation
	f.add(changes)
	if f.resumed != "" {
		stale, known, ready := state.Stale(f.resource, f.resumed)
		if ready {
			f.add(stale)
			if known {
				f.remember(f.resumed, stale)
			}
			f.resumed, f.unknown = "", !known || len(stale) > 0
		}
	}
	if len(f.pending) == 0 {
		return
	}
	if turn := f.lists.Reserve(); turn.Delay() > 0 {
		f.retry = time.After(turn.Delay())
		turn.Cancel()
		return
	}
	if err := f.resend(); err != nil {
		f.answer.transport.opts.Logger.Warn("the objects of Services whose filters have changed cannot be listed; trying again",
			"path", f.request.URL.Path, "err", err)
		for f.lists.Allow() { // nor may another change be a reason to try at once
		}
		f.retry = time.After(resendEvery)
		return
	}
	f.pending, f.unknown = topology.Set{}, false
}

func (f *followed) add(services topology.Set) {
	for name := range services {
		f.pending[name] = struct{}{}
	}
}

// remember records which Services a client does not have that has read them at a version, with the filters that are known. Of one
// that changed later, or for which something else was decided, nobody knows: the client is told that it is gone, if it is.
func (f *followed) remember(version string, stale topology.Set) {
	if f.resource != topology.Services {
		return
	}
	f.answer.transport.opts.Topology.EachOf(version, func(name types.NamespacedName, service *topology.Service) {
		if _, ok := stale[name]; ok {
			return
		}
		for _, t := range f.answer.transforms {
			if t.filter.drops(name, service) {
				f.dropped[name] = true
			}
		}
	})
}

// frame passes a frame on, filtered.
func (f *followed) frame(next *wire.Frame) {
	f.within = next.More
	if next.Err != nil || next.Type == "" || next.Type == watch.Error {
		f.buf = append(f.buf, next.Raw...)
		return
	}
	if version, err := strconv.ParseUint(string(next.Meta.ResourceVersion), 10, 64); err == nil {
		f.position = max(f.position, version)
	}
	if next.Type == watch.Bookmark {
		f.initial = f.initial && !next.InitialEventsEnd
		f.buf = append(f.buf, next.Raw...)
		return
	}
	bare, err := wire.AppendBare(nil, f.answer.encoding, next.Object)
	if err != nil || string(next.Meta.Kind) != f.kind().Kind {
		f.buf = append(f.buf, next.Raw...) // metadata alone, for example
		return
	}
	f.event(next.Type, &next.Meta, bare, next.Raw)
}

// event sends an event, as the client has to get it by what it has.
func (f *followed) event(event watch.EventType, m *wire.Meta, bare, raw []byte) {
	name := nameOf(m)
	out, err := f.answer.object(bare, m)
	if err != nil {
		out = result{bare: bare} // filters do not fail
	}
	had := !f.dropped[name]
	switch {
	case event == watch.Deleted:
		delete(f.dropped, name)
		out.changed = false
		out.dropped = !had
	case out.dropped:
		f.dropped[name] = true
		if event == watch.Modified && had {
			event, out = watch.Deleted, result{bare: bare, changed: true}
		}
	case !had:
		delete(f.dropped, name)
		event, out.changed = watch.Added, true
	}
	switch {
	case out.dropped:
		f.bookmark()
	case !out.changed:
		f.buf = append(f.buf, raw...)
	default:
		f.buf = wire.AppendEvent(f.buf, f.answer.encoding, event, f.kind(), out.bare)
		f.bookmark()
	}
}

// bookmark has the client resume from where the stream is, after an event that was dropped, or
// that has another version.
func (f *followed) bookmark() {
	if f.bookmarks && !f.initial && f.position > 0 {
		f.buf = wire.AppendBookmark(f.buf, f.answer.encoding, f.kind(), strconv.FormatUint(f.position, 10), false)
	}
}

// kind is the type of the objects.
func (f *followed) kind() wire.TypeMeta {
	if f.resource == topology.Services {
		return wire.TypeMeta{APIVersion: "v1", Kind: "Service"}
	}
	return wire.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}
}
