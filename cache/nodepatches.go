package cache

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/cache/derived"
	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/pause"
)

// This file has what CNI agents write to the node's own Node: package derived applies it while the cloud is away,
// if apiservers have let this user patch the Node, and the Node says that its program has written the same. It is sent
// afterwards.

// nodeWriter returns who patches the node's own Node, if the request does that and its caller is a
// service account.
func (x *exchange) nodeWriter() (derived.NodeWriter, bool) {
	i := x.info
	return derived.NodeWriter{User: x.who.user, Subresource: i.Subresource},
		x.req.Method == http.MethodPatch && identity.IsServiceAccount(x.who.user) && i.APIGroup == corev1.GroupName && i.APIVersion == "v1" && i.Resource == "nodes" &&
			i.Name == x.cache.opts.NodeName && (i.Subresource == "" || i.Subresource == "status") && !x.isDryRun()
}

// learnNodeWriter takes an apiserver's answer to a patch of the node's own Node.
func (x *exchange) learnNodeWriter(code int) {
	by, ok := x.nodeWriter()
	switch {
	case ok && code/100 == 2:
		request, _ := x.body() // without it, it is a patch that is not taken offline
		x.cache.derived.LearnWriter(by, x.patch(request))
	case ok && refused(code):
		x.cache.derived.ForgetWriter(by)
	}
}

// fieldManager returns the name under which an apiserver records what a request changes.
func (x *exchange) fieldManager() string {
	if name := x.req.URL.Query().Get("fieldManager"); name != "" {
		return name
	}
	program, _, _ := strings.Cut(x.req.Header.Get("User-Agent"), "/")
	return program
}

// sendNodePatches sends the patches of the Node that wait, until ctx ends. One whose user has no
// usable token here waits for it: tokens are not on disk, and come with the user's next request.
func (w *writes) sendNodePatches(ctx context.Context) {
	const often, seldom = time.Second, time.Minute
	wait := often
	for pause.Sleep(ctx, wait+pause.Jitter(w.cache.opts.ReconnectJitter)) {
		wait = min(2*wait, seldom)
		tokens := w.cache.tokens.Usable()
		for _, one := range w.cache.derived.Waiting() {
			if token := tokens[one.User]; token != nil {
				w.sendNodePatch(ctx, one, token)
			}
		}
	}
}

func (w *writes) sendNodePatch(ctx context.Context, one derived.NodePatch, token *identity.Token) {
	const timeout = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	path := "/api/v1/nodes/" + w.cache.opts.NodeName
	if one.Subresource != "" {
		path += "/" + one.Subresource
	}
	patch := one.Patch.Request()
	r, err := http.NewRequestWithContext(ctx, patch.Method, path, bytes.NewReader(patch.Body))
	if err != nil {
		return // the node's name is valid
	}
	values := r.URL.Query()
	values.Set("fieldManager", one.Manager)
	r.URL.RawQuery = values.Encode()
	r.Header.Set("Content-Type", patch.ContentType)
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "edgehub")
	r.Header.Set("Authorization", token.Authorization())
	res, err := w.send(r, false)
	if err != nil {
		return // it is sent again
	}
	defer res.Body.Close()
	log := w.cache.log.With("user", identity.Readable(one.User), "subresource", one.Subresource, "status", res.StatusCode)
	switch code := res.StatusCode; {
	case code/100 == 2:
		w.cache.derived.Sent(one)
		w.cache.metrics.nodePatches.WithLabelValues("sent").Inc()
		log.Info("a pod's patch of the Node, of the outage, was sent")
	case code/100 == 5, code == http.StatusUnauthorized, code == http.StatusTooManyRequests, code == http.StatusRequestTimeout:
		log.Debug("a pod's patch of the Node, of the outage, was not taken; it is sent again")
	default:
		w.cache.derived.Sent(one)
		if refused(code) {
			w.cache.derived.ForgetWriter(one.NodeWriter)
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
