package transform

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/edgehub-io/edgehub/cache/wire"
)

const (
	// showAgain is when a pod is shown to a watch that could not be shown.
	showAgain = time.Second
	// bringWithin is how long the watch has to bring a pod that is newer than what it has brought.
	bringWithin = 200 * time.Millisecond
)

// podWatch is the body of kubelet's watch of pods. What kubelet is to read of a pod may change while no apiserver has anything
// to say: then the pod is read, and sent as MODIFIED at the version that it has. So are, when a watch begins, all pods of which
// kubelet may have read something else: from a hub that died before it had sent the event. It is for one reader at a time; Close may
// be called beside it.
type podWatch struct {
	*pump

	answer  *answer
	request *http.Request
	source  PodImages

	bookmarks bool   // the client wants them
	initial   bool   // the initial events have not ended
	within    bool   // an event that comes in pieces has begun
	position  uint64 // the version that the client has got to

	generation uint64          // of source, that pending has
	changed    <-chan struct{} // of source
	retry      <-chan time.Time
	pending    map[types.UID]*pendingPod

	buf   []byte
	ready []byte // of buf: not read yet
	err   error  // after ready
}

// pendingPod is a pod that is to be shown.
type pendingPod struct {
	types.NamespacedName

	awaited bool // the watch was given time to bring it
	logged  bool // that it cannot be read
}

// followPods transforms the events of a watch of pods, and has it follow what decides about them.
func (a *answer) followPods(r *http.Request, res *http.Response) error {
	frames, err := a.pump(res)
	if err != nil {
		return err
	}
	query := r.URL.Query()
	w := &podWatch{
		pump: frames, answer: a, request: r, source: a.pods(), pending: map[types.UID]*pendingPod{},
		bookmarks: isTrue(query.Get("allowWatchBookmarks")), initial: isTrue(query.Get("sendInitialEvents")),
	}
	w.position, _ = strconv.ParseUint(query.Get("resourceVersion"), 10, 64)
	w.follow()
	w.retry = time.After(0)
	res.Body = w
	go w.run()
	return nil
}

// isOfNode reports whether a request is for the pods of a node: kubelet's is, and what else its program watches may not select
// the pods that would be shown.
func isOfNode(r *http.Request) bool {
	info, _ := request.RequestInfoFrom(r.Context())
	query := r.URL.Query()
	selector, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil || info.Namespace != "" || query.Get("labelSelector") != "" {
		return false
	}
	_, ofNode := selector.RequiresExactMatch("spec.nodeName")
	return ofNode && len(selector.Requirements()) == 1
}

func isTrue(value string) bool { return value == "true" || value == "1" }

// Read returns what belongs to at most one event or change, so that it is flushed at once.
func (w *podWatch) Read(p []byte) (int, error) {
	for len(w.ready) == 0 {
		if w.err != nil {
			return 0, w.err
		}
		w.next()
	}
	n := copy(p, w.ready)
	w.ready = w.ready[n:]
	return n, nil
}

func (w *podWatch) next() {
	w.buf = w.buf[:0]
	changed, retry := w.changed, w.retry
	if w.initial || w.within {
		changed, retry = nil, nil
	}
	select {
	case next := <-w.frames:
		if w.err = next.err; w.err == nil {
			w.frame(&next.Frame)
			w.used()
		}
	case <-changed:
		w.follow()
		w.show()
	case <-retry:
		w.show()
	case <-w.closed:
		w.err = http.ErrBodyReadAfterClose
	}
	w.ready = w.buf
}

// frame passes a frame on, transformed.
func (w *podWatch) frame(next *wire.Frame) {
	w.within = next.More
	if version, err := strconv.ParseUint(string(next.Meta.ResourceVersion), 10, 64); err == nil {
		w.position = max(w.position, version)
	}
	w.initial = w.initial && !next.InitialEventsEnd
	delete(w.pending, types.UID(next.Meta.UID)) // it passes as kubelet is to read it now
	edited, err := w.answer.event(next)
	if err != nil {
		w.answer.transport.opts.Logger.Error("an event cannot be transformed: the watch ends", "err", err)
		w.err = io.EOF
		edited = wire.AppendError(nil, w.answer.encoding, statusOf(err))
	}
	w.buf = append(w.buf, edited...)
}

// follow adds to pending what has changed.
func (w *podWatch) follow() {
	var pods map[types.UID]types.NamespacedName
	pods, w.generation, w.changed = w.source.Changes(w.generation)
	for uid, name := range pods {
		w.pending[uid] = &pendingPod{NamespacedName: name}
	}
}

// show sends the pods that are pending. A bookmark follows, because clients resume from the version of the last event, and
// pods have old versions.
func (w *podWatch) show() {
	w.retry = nil
	const most = 5 * time.Second // for all of them: no event passes meanwhile
	ctx, cancel := context.WithTimeout(w.request.Context(), most)
	defer cancel()
	again := showAgain
	for uid, p := range w.pending {
		pause := showAgain
		if !p.awaited {
			pause = bringWithin
		}
		shown, err := w.showPod(ctx, uid, p)
		switch {
		case shown:
			delete(w.pending, uid)
			continue
		case err != nil && !p.logged:
			p.logged = true
			w.answer.transport.opts.Logger.Warn("a pod whose images kubelet is to read otherwise cannot be read; trying again", "pod", p.String(), "err", err)
		}
		again = min(again, pause)
	}
	if len(w.pending) > 0 {
		w.retry = time.After(again)
	}
	if len(w.buf) > 0 && w.bookmarks && w.position > 0 {
		w.buf = wire.AppendBookmark(w.buf, w.answer.encoding, podType, strconv.FormatUint(w.position, 10), false)
	}
}

var podType = wire.TypeMeta{APIVersion: "v1", Kind: "Pod"}

// showPod sends a pod as kubelet is to read it now, and reports whether that is done, or there is nothing to do.
func (w *podWatch) showPod(ctx context.Context, uid types.UID, p *pendingPod) (bool, error) {
	bare, m, err := w.read(ctx, p.NamespacedName)
	if err != nil || bare == nil || types.UID(m.UID) != uid {
		return err == nil, err // the pod is gone
	}
	version, err := strconv.ParseUint(string(m.ResourceVersion), 10, 64)
	if err == nil && version > w.position && (!w.bookmarks || !p.awaited) {
		p.awaited = true // the watch is about to bring it; one that is held may not, and the bookmark says from where to resume
		return false, nil
	}
	out, err := w.answer.object(bare, &m)
	if err != nil {
		return false, err
	}
	w.buf = wire.AppendEvent(w.buf, w.answer.encoding, watch.Modified, podType, out.bare)
	return true, nil
}

// read gets a pod, bare, as the client itself would without the transform: offline, it is the cache's. It is nil if there is
// none.
func (w *podWatch) read(ctx context.Context, name types.NamespacedName) ([]byte, wire.Meta, error) {
	res, err := w.answer.transport.next.RoundTrip(podRequest(ctx, w.request, name, w.answer.encoding))
	if err != nil {
		return nil, wire.Meta{}, err
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusNotFound {
		return nil, wire.Meta{}, nil
	}
	if encoding := wire.ParseContentType(res.Header.Get("Content-Type")).Encoding; res.StatusCode != http.StatusOK || encoding != w.answer.encoding {
		return nil, wire.Meta{}, fmt.Errorf("the answer is %s, %s", res.Status, res.Header.Get("Content-Type"))
	}
	body, rest, err := readBody(res)
	if err != nil || rest != nil {
		return nil, wire.Meta{}, fmt.Errorf("read the pod: %w", err)
	}
	bare, err := wire.AppendBare(nil, w.answer.encoding, body)
	if err != nil {
		return nil, wire.Meta{}, err
	}
	m, err := wire.Inspect(w.answer.encoding, body)
	return bare, m, err
}

// podRequest returns the GET of a pod by the client of a watch.
func podRequest(ctx context.Context, watching *http.Request, name types.NamespacedName, e wire.Encoding) *http.Request {
	info, _ := request.RequestInfoFrom(watching.Context())
	getting := *info
	getting.Verb, getting.Namespace, getting.Name = "get", name.Namespace, name.Name
	getting.FieldSelector, getting.LabelSelector = "", ""
	getting.Path, getting.Parts = "/api/v1/namespaces/"+name.Namespace+"/pods/"+name.Name, []string{"pods", name.Name}
	r := watching.Clone(request.WithRequestInfo(ctx, &getting))
	r.URL.Path, r.URL.RawPath, r.URL.RawQuery, r.RequestURI = getting.Path, "", "", ""
	r.Header.Set("Accept", e.MediaType())
	r.Header.Set("Accept-Encoding", "identity")
	return r
}
