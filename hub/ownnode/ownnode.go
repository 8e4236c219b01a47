// Package ownnode notices that the cloud has no Node of this node's name any more. kubelet registers its Node once, when
// it starts; a Node that is deleted later, as cloud controllers do while a node is away, stays away until kubelet restarts.
//
// Nobody is asked for that: kubelet reads its Node, or reports its status, every 10 s, and the answers pass here.
package ownnode

import (
	"context"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"sync"
	"time"
)

// Options are the options of New. All are required, and its functions are safe for concurrent use and do not block.
type Options struct {
	Name string // of the node
	// IsNode reports whether a request is the node's.
	IsNode func(context.Context) bool
	// Away reports whether the node cannot use the cloud: answers are the cache's then.
	Away func() bool
	// Back is called when the Node is there again.
	Back   func()
	Logger *slog.Logger
}

// Node is the Node of this node. It is safe for concurrent use.
type Node struct {
	Options
	path string

	mu      sync.Mutex
	missing time.Time // since when it is known not to exist; zero: it exists, as far as is known
}

// New returns a Node that counts as there.
func New(o Options) *Node { return &Node{Options: o, path: "/api/v1/nodes/" + o.Name} }

// Missing returns that the Node does not exist, since when that is known, and what to do; "" if it exists, as far as
// is known.
func (n *Node) Missing() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.missing.IsZero() {
		return ""
	}
	return fmt.Sprintf("the cloud has no Node %s, as was seen at %s: it was deleted there, and no pod is started for it. kubelet registers it when it starts: systemctl restart kubelet",
		n.Name, n.missing.UTC().Format(time.RFC3339))
}

// Wrap returns a RoundTripper that looks at next's answers to the node.
func (n *Node) Wrap(next http.RoundTripper) http.RoundTripper { return roundTripper{n, next} }

type roundTripper struct {
	node *Node
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := t.next.RoundTrip(r)
	if n := t.node; err == nil && n.concerns(r) && n.IsNode(r.Context()) && !n.Away() {
		switch {
		case res.StatusCode == http.StatusNotFound && isAPI(res):
			n.set(true)
		case res.StatusCode/100 == 2:
			n.set(false)
		}
	}
	return res, err
}

// concerns reports whether a request reads or writes the Node or its status.
func (n *Node) concerns(r *http.Request) bool {
	return (r.URL.Path == n.path || r.URL.Path == n.path+"/status") &&
		(r.Method == http.MethodGet || r.Method == http.MethodPatch || r.Method == http.MethodPut)
}

// isAPI reports whether an apiserver has answered: what stands between may answer 404 with a page.
func isAPI(res *http.Response) bool {
	mediaType, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	return err == nil && (mediaType == "application/json" || mediaType == "application/vnd.kubernetes.protobuf")
}

func (n *Node) set(missing bool) {
	n.mu.Lock()
	was := !n.missing.IsZero()
	if was == missing {
		n.mu.Unlock()
		return
	}
	n.missing = time.Time{}
	if missing {
		n.missing = time.Now()
	}
	n.mu.Unlock()
	if missing {
		n.Logger.Warn("the Node was deleted in the cloud: no pod is started for it until kubelet registers it, which it does when it starts: systemctl restart kubelet", "node", n.Name)
		return
	}
	n.Logger.Info("the Node is there again", "node", n.Name)
	n.Back()
}
