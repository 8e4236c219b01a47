package cache

import (
	"context"
	"errors"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/answer"
	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/patch"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/repeat"
	"github.com/edgehub-io/edgehub/cache/spool"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// errWrite is returned for a write that cannot be answered offline.
var errWrite = errors.New("this cannot be done without it")

// writes handles requests other than reads of objects: what nodes and pods write while the
// cloud is away, and the state for it.
type writes struct {
	cache *Cache
	// answered is closed when an apiserver has answered the node. Until then a hub that has
	// just started cannot know whether an outage from before continues.
	answered chan struct{}
	reached  func() // closes answered, once
	events   *spool.Spool
	answers  *repeat.Answers
}

func newWrites(c *Cache) *writes {
	answered := make(chan struct{})
	return &writes{
		cache: c, answered: answered, reached: sync.OnceFunc(func() { close(answered) }),
		events: spool.New(c.disk.Table(spool.Table), spool.Options{
			MaxCount: c.opts.SpoolCount, MaxBytes: c.opts.SpoolBytes, Logger: c.log, Registerer: c.metrics.all,
		}),
		answers: repeat.New(repeat.Options{
			Upstream: c.up, AsNode: c.opts.AsNode, Users: c.tokens, Views: c.views, Logger: c.log,
			TTL: c.opts.AuthorizationTTL, Grace: c.opts.TokenGrace, Denial: c.denial,
		}),
	}
}

// run handles what was written offline after each outage, until ctx ends.
func (w *writes) run(ctx context.Context) error {
	for w.cache.up.WaitUp(w.cache.opts.AsNode(ctx)) == nil {
		w.whileUp(ctx)
	}
	return nil
}

// whileUp does the work after an outage, and returns at the next loss.
func (w *writes) whileUp(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	lost := w.cache.up.Lost(w.cache.node)
	var tasks sync.WaitGroup
	tasks.Go(func() { w.onceAnswered(ctx, w.cache.derived.Settle) })
	for _, send := range []func(context.Context){w.replay, w.confirm, w.sendNodePatches} {
		tasks.Go(func() {
			if w.cache.opts.AwaitMaySend(ctx) == nil {
				send(ctx)
			}
		})
	}
	select {
	case <-ctx.Done():
	case <-lost:
	}
	cancel()
	tasks.Wait()
}

// replay sends the Events in the spool.
func (w *writes) replay(ctx context.Context) {
	if err := w.events.Replay(ctx, w.send); err != nil && ctx.Err() == nil {
		w.cache.log.Warn("events of an outage could not be sent", "err", err)
	}
}

// confirm asks the apiservers again for their last answers.
func (w *writes) confirm(ctx context.Context) { w.onceAnswered(ctx, w.answers.Confirm) }

func (w *writes) onceAnswered(ctx context.Context, do func(context.Context)) {
	select {
	case <-w.answered:
		do(ctx)
	case <-ctx.Done():
	}
}

func (w *writes) send(r *http.Request, asNode bool) (*http.Response, error) {
	if asNode {
		r = r.WithContext(w.cache.opts.AsNode(r.Context()))
	}
	return w.cache.up.RoundTrip(r)
}

// online handles an apiserver's answer to a request that does not read objects.
func (w *writes) online(x *exchange, res *http.Response) {
	q := x.question()
	switch {
	case q != nil:
		w.keep(x, q, res)
	case res.StatusCode == http.StatusNotFound && x.req.Method != http.MethodGet:
		if q := x.written(); q != nil {
			x.notFound(res, q)
		}
	case x.req.Method == http.MethodPut || x.req.Method == http.MethodPatch:
		w.updated(x, res)
	case x.info.Verb == "delete" && x.info.Subresource == "" && res.StatusCode/100 == 2:
		x.deleted(res, x.named())
	case x.info.Verb == "deletecollection" && res.StatusCode/100 == 2:
		x.deletedAll()
	case x.info.Verb == "create" && x.info.Subresource == "" && res.StatusCode == http.StatusCreated:
		x.created(res)
	}
}

// updated handles an apiserver's answer to a PUT or PATCH.
func (w *writes) updated(x *exchange, res *http.Response) {
	x.learnNodeWriter(res.StatusCode)
	q := x.written()
	if q == nil || res.StatusCode/100 != 2 {
		return
	}
	if repr := wire.Answered(q.Accept, res.Header.Get("Content-Type")); repr.Cacheable() {
		x.keepObject(res, q, repr)
	}
}

// offline answers a request that does not read objects.
func (w *writes) offline(x *exchange) (*http.Response, error) {
	if q := x.question(); q != nil {
		return w.repeat(x, q)
	}
	if x.isHealth() {
		return answer.BytesResponse(x.req, http.StatusOK, "text/plain; charset=utf-8", []byte("ok")), nil
	}
	body, err := x.body()
	if err != nil {
		return nil, errWrite
	}
	switch group := x.info.APIGroup; {
	case x.info.Resource == "events" && (group == "" || group == "events.k8s.io") && x.info.Subresource == "" && x.req.Method != http.MethodDelete && !x.isDryRun():
		return w.event(x, body)
	case x.req.Method == http.MethodPost:
		return w.create(x, body)
	case x.req.Method == http.MethodPut || x.req.Method == http.MethodPatch:
		return w.update(x, body)
	case x.req.Method == http.MethodGet:
		return nil, view.ErrNeverRead
	}
	return nil, errWrite
}

// isHealth reports whether the request is for the health of an apiserver, which offline is that of the hub.
func (x *exchange) isHealth() bool {
	switch x.req.URL.Path {
	case "/healthz", "/livez", "/readyz":
		return x.req.Method == http.MethodGet
	}
	return false
}

func (w *writes) event(x *exchange, body []byte) (*http.Response, error) {
	i, header := x.info, x.req.Header
	authorization := ""
	if !x.who.isNode() {
		authorization = x.who.token.Authorization()
	}
	a, err := w.events.Add(spool.Request{
		Method: x.req.Method, Group: i.APIGroup, Version: i.APIVersion, Namespace: i.Namespace, Name: i.Name,
		ContentType: header.Get("Content-Type"), Accept: header.Get("Accept"), Body: body, UserAgent: header.Get("User-Agent"),
		User: x.who.user, Authorization: authorization,
	})
	if err != nil {
		return answer.ErrorResponse(x.req, err)
	}
	return answer.BytesResponse(x.req, a.Code, a.ContentType, a.Body), nil
}

// ownObjects are objects that a kubelet creates for its node when it starts, or updates if
// they exist.
var ownObjects = map[schema.GroupResource]bool{
	{Resource: "nodes"}:                                true,
	{Group: "storage.k8s.io", Resource: "csinodes"}:    true,
	{Group: "coordination.k8s.io", Resource: "leases"}: true,
}

// create answers AlreadyExists for an object that is known to exist.
func (w *writes) create(x *exchange, body []byte) (*http.Response, error) {
	resource := x.resource()
	if !ownObjects[resource.GroupResource()] || x.info.Subresource != "" {
		return nil, errWrite
	}
	m, err := wire.Inspect(wire.ParseContentType(x.req.Header.Get("Content-Type")).Encoding, body)
	if err != nil {
		return nil, errWrite
	}
	q := &query.Query{User: x.who.user, Resource: resource, Namespace: x.info.Namespace, Name: string(m.Name)}
	if _, err := x.cache.views.Seek(q); err != nil {
		return nil, errWrite
	}
	return answer.ErrorResponse(x.req, apierrors.NewAlreadyExists(resource.GroupResource(), q.Name))
}

// update applies the node's status and leases, and what a CNI agent writes to the Node.
func (w *writes) update(x *exchange, body []byte) (*http.Response, error) {
	q, derived := x.written(), w.cache.derived
	by, ofNode := x.nodeWriter()
	if q == nil || !ofNode && !x.who.isNode() {
		return nil, errWrite
	}
	asked, ok := wire.Negotiate(q.Accept, func(r wire.Representation) bool { return r.Cacheable() })
	if !ok {
		return answer.ErrorResponse(x.req, answer.NotAcceptable(q))
	}
	var result view.Object
	var err error
	if ofNode {
		result, err = derived.PatchNode(q, by, x.fieldManager(), x.patch(body))
	} else {
		result, err = derived.Write(q, x.info.Subresource, x.patch(body))
	}
	switch {
	case errors.Is(err, patch.ErrUnsupported), errors.Is(err, convert.ErrUnknownType):
		return nil, errWrite
	case err != nil:
		return answer.ErrorResponse(x.req, err)
	case ofNode:
		w.cache.metrics.nodePatches.WithLabelValues("taken").Inc()
		w.cache.log.Info("a pod's patch of the Node is kept until the cloud is back", "user", identity.Readable(by.User), "subresource", by.Subresource)
	}
	return x.ask().Respond(http.StatusOK, result, asked)
}

// patch returns the exchange as a PUT or PATCH.
func (x *exchange) patch(body []byte) patch.Request {
	return patch.Request{Method: x.req.Method, ContentType: x.req.Header.Get("Content-Type"), Body: body}
}
