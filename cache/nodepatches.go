package cache

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/negotiation"
	"github.com/edgehub-io/edgehub/cache/nodepatch"
	"github.com/edgehub-io/edgehub/cache/offline"
	"github.com/edgehub-io/edgehub/cache/overlay"
	"github.com/edgehub-io/edgehub/cache/pause"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// This file has what CNI agents write to the node's own Node: it learns from apiservers who may write
// what, applies that to the overlay while the cloud is away, and sends it afterwards. See package
// nodepatch.

// nodeWriter returns who patches the node's own Node, if the request does that and its caller is a
// service account.
func (x *exchange) nodeWriter() (nodepatch.Writer, bool) {
	i := x.info
	return nodepatch.Writer{User: x.who.user, Subresource: i.Subresource},
		x.req.Method == http.MethodPatch && identity.IsServiceAccount(x.who.user) && i.APIGroup == corev1.GroupName && i.APIVersion == "v1" && i.Resource == "nodes" &&
			i.Name == x.cache.opts.NodeName && (i.Subresource == "" || i.Subresource == "status") && !x.isDryRun()
}

// fieldManager returns the name under which an apiserver records what a request changes.
func (x *exchange) fieldManager() string {
	if name := x.req.URL.Query().Get("fieldManager"); name != "" {
		return name
	}
	program, _, _ := strings.Cut(x.req.Header.Get("User-Agent"), "/")
	return program
}

// learnNodeWriter handles an apiserver's answer to a PATCH of the Node, whose body is a Node if it
// was a success.
func (x *exchange) learnNodeWriter(w nodepatch.Writer, contentType string, answer []byte) {
	object, err := convert.DecodeBody(contentType, answer, wire.TypeMeta{APIVersion: "v1", Kind: "Node"})
	node, ok := object.(*corev1.Node)
	if err != nil || !ok {
		return // only its metadata was asked for, or a Table
	}
	var written *nodepatch.Patch
	if body, err := x.body(); err == nil {
		written, _ = nodepatch.Parse(x.req.Header.Get("Content-Type"), body) // nil for another patch
	}
	x.cache.writes.patches.Learn(w, x.fieldManager(), written, node)
}

// patchNode applies a CNI agent's patch of the Node to the overlay, and keeps it for the cloud.
func (w *writes) patchNode(x *exchange, by nodepatch.Writer, body []byte) (*http.Response, error) {
	patch, err := nodepatch.Parse(x.req.Header.Get("Content-Type"), body)
	if err != nil {
		return nil, err
	}
	q := x.named()
	own, err := x.cached(q)
	if err != nil {
		return offline.ErrorResponse(x.req, err)
	}
	ofNode := *q
	ofNode.User = query.NodeUser
	current, err := x.cached(&ofNode)
	if err != nil {
		return offline.ErrorResponse(x.req, err)
	}
	m, err := wire.Inspect(current.Repr.Encoding, current.Bare)
	if err != nil {
		return nil, errWrite
	}
	if err := w.patches.Allow(by, string(m.UID), patch); err != nil {
		return nil, err
	}
	asked, ok := negotiation.Select(q.Accept, func(r negotiation.Representation) bool { return r.Cacheable() })
	if !ok {
		return offline.ErrorResponse(x.req, offline.NotAcceptable(q))
	}
	request := overlay.Request{Method: http.MethodPatch, Subresource: "status", ContentType: string(types.StrategicMergePatchType), Body: patch.Body()}
	key := offline.OverlayKey(x.info)
	// The caller gets its own copy, patched: it may have read another version than the node.
	answer, err := overlay.Patched(key, request, offline.CachedObject(x.ask().Overlaid(own)))
	if err != nil {
		return offline.ErrorResponse(x.req, err)
	}
	if _, err := w.overlay.Apply(key, request, offline.CachedObject(current)); err != nil {
		return offline.ErrorResponse(x.req, err)
	}
	if err := w.patches.Add(by, string(m.UID), patch); err != nil {
		return nil, err
	}
	x.cache.metrics.nodePatches.WithLabelValues("taken").Inc()
	x.cache.log.Info("a pod's patch of the Node is kept until the cloud is back", "user", identity.Readable(by.User), "subresource", by.Subresource)
	return x.ask().Respond(http.StatusOK, offline.OverlaidObject(answer), asked)
}

// sendNodePatches sends the patches of the Node that wait, until ctx ends. One whose user has no
// token here yet waits for it: tokens are not on disk, and come with the user's next request.
func (w *writes) sendNodePatches(ctx context.Context) {
	const often, seldom = time.Second, time.Minute
	wait := often
	for pause.Sleep(ctx, wait+pause.Jitter(w.cache.opts.ReconnectJitter)) {
		wait = min(2*wait, seldom)
		for _, one := range w.patches.Waiting() {
			if token := w.cache.tokens.Newest(one.User); token != "" {
				w.sendNodePatch(ctx, one, token)
			}
		}
	}
}

func (w *writes) sendNodePatch(ctx context.Context, one nodepatch.Waiting, token string) {
	const timeout = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	path := "/api/v1/nodes/" + w.cache.opts.NodeName
	if one.Subresource != "" {
		path += "/" + one.Subresource
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPatch, path, bytes.NewReader(one.Patch.Body()))
	if err != nil {
		return // the node's name is valid
	}
	values := r.URL.Query()
	values.Set("fieldManager", one.Manager)
	r.URL.RawQuery = values.Encode()
	r.Header.Set("Content-Type", string(types.StrategicMergePatchType))
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "edgehub")
	r.Header.Set("Authorization", "Bearer "+token)
	res, err := w.send(r, false)
	if err != nil {
		return // it is sent again
	}
	defer res.Body.Close()
	log := w.cache.log.With("user", identity.Readable(one.User), "subresource", one.Subresource, "status", res.StatusCode)
	switch code := res.StatusCode; {
	case code/100 == 2:
		w.patches.Done(one)
		w.cache.metrics.nodePatches.WithLabelValues("sent").Inc()
		log.Info("a pod's patch of the Node, of the outage, was sent")
	case code/100 == 5, code == http.StatusUnauthorized, code == http.StatusTooManyRequests, code == http.StatusRequestTimeout:
		log.Debug("a pod's patch of the Node, of the outage, was not taken; it is sent again")
	default:
		w.patches.Done(one)
		if refused(code) {
			w.patches.Forget(one.Writer)
		}
		w.cache.metrics.nodePatches.WithLabelValues("refused").Inc()
		log.Warn("a pod's patch of the Node, of the outage, was refused: it is dropped, and the Node stays as it is in the cloud")
	}
}

// refused reports whether an apiserver says that a user may not write this: by authorization, or by
// an admission policy.
func refused(code int) bool {
	return code == http.StatusForbidden || code == http.StatusUnprocessableEntity
}
