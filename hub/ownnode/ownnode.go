// Package ownnode notices that the cloud has no Node of this node's name any more. kubelet registers its Node once, when
// it starts; a Node that is deleted later, as cloud controllers do while a node is away, stays away until kubelet restarts.
// It also notices that another machine runs as this node: see clone.
//
// Nobody is asked for that: kubelet reads its Node, or reports its status, and renews its lease, every 10 s, and the answers pass
// here.
package ownnode

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/wire"
)

const (
	// maxBody bounds the answer that a Node is read from: with fifty images in its status it has some 20 kB.
	maxBody = 512 << 10
	// maxBootID bounds what counts as a boot ID: Linux has 36 bytes.
	maxBootID = 64
)

// Options are the options of New. All are required, and its functions are safe for concurrent use and do not block, unless they say
// so.
type Options struct {
	Name string // of the node
	// IsNode reports whether a request is the node's.
	IsNode func(context.Context) bool
	// Away reports whether the node cannot use the cloud: answers are the cache's then.
	Away func() bool
	// Back is called when the Node is there again.
	Back func()
	// Boot is this machine's; see BootID.
	Boot string
	// Cloned is called when another machine is found to run as this node, with what Clone returns.
	Cloned func(message string)
	// SetCondition sets a condition of the Node. It may block.
	SetCondition func(context.Context, corev1.NodeCondition) error
	Registerer   prometheus.Registerer
	Logger       *slog.Logger
}

// Node is the Node of this node. It is safe for concurrent use.
type Node struct {
	Options
	path, lease string

	mu      sync.Mutex
	missing time.Time // since when it is known not to exist; zero: it exists, as far as is known
	clone   clone
	cloned  time.Time // since when a clone is known; zero: none was when the last answer was seen
	since   time.Time // since when the Node is seen again and again
	seen    time.Time // when it was seen last
	set     time.Time // when the condition was set last

	conditions chan corev1.NodeCondition // to be set; room for one, and what does not fit comes with a later answer
}

// New returns a Node that counts as there, and as one machine.
func New(o Options) *Node {
	n := &Node{
		Options: o, path: "/api/v1/nodes/" + o.Name, lease: "/apis/coordination.k8s.io/v1/namespaces/" + corev1.NamespaceNodeLease + "/leases/" + o.Name,
		clone: clone{boot: o.Boot}, conditions: make(chan corev1.NodeCondition, 1),
	}
	o.Registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "edgehub_node_cloned",
		Help: "1 while another machine runs as this node, as one does that was started from a copy of its disk.",
	}, func() float64 {
		if n.Clone() != "" {
			return 1
		}
		return 0
	}))
	return n
}

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

// Clone returns that another machine runs as this node, since when that is known, and what to do; "" if none was seen lately.
func (n *Node) Clone() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cloned.IsZero() || !n.clone.there(time.Now()) {
		return ""
	}
	return n.tellLocked()
}

func (n *Node) tellLocked() string {
	return fmt.Sprintf("another machine runs as node %s, as was seen at %s: the Node has its boot ID and %s, which is this machine's, in turns. One is a copy of the other's disk: switch the copy off, and join it under a name of its own",
		n.Name, n.cloned.UTC().Format(time.RFC3339), n.Boot)
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
	n := t.node
	if err != nil || r.URL.Path != n.lease && !n.concerns(r) || !n.IsNode(r.Context()) || n.Away() {
		return res, err
	}
	switch {
	case r.URL.Path == n.lease:
		if r.Method == http.MethodPut && res.StatusCode == http.StatusConflict && isAPI(res) {
			n.judge(n.clone.conflict)
		}
	case res.StatusCode == http.StatusNotFound && isAPI(res):
		n.setMissing(true)
	case res.StatusCode/100 == 2:
		n.setMissing(false)
		n.look(res)
	}
	return res, err
}

// look reads the boot ID in an answer that has the Node, and leaves the answer as it was.
func (n *Node) look(res *http.Response) {
	if res.Header.Get("Content-Encoding") != "" || res.ContentLength > maxBody {
		return
	}
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxBody)) // an error is there for the caller, too
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), res.Body), res.Body}
	object, err := convert.DecodeBody(res.Header.Get("Content-Type"), body, wire.TypeMeta{APIVersion: "v1", Kind: "Node"})
	if err != nil { // a Table, or metadata only
		return
	}
	node, ok := object.(*corev1.Node)
	if !ok || len(node.Status.NodeInfo.BootID) > maxBootID {
		return
	}
	version, err := strconv.ParseUint(node.ResourceVersion, 10, 64)
	if err != nil {
		return
	}
	n.judge(func(now time.Time) { n.clone.saw(node.UID, version, node.Status.NodeInfo.BootID, now) })
	n.compare(node)
}

// judge takes note of what was seen, and tells if there is a clone since then, or none any more.
func (n *Node) judge(note func(now time.Time)) {
	n.mu.Lock()
	now := time.Now()
	note(now)
	was, is := !n.cloned.IsZero(), n.clone.there(now)
	if was == is {
		n.mu.Unlock()
		return
	}
	n.cloned = time.Time{}
	if is {
		n.cloned = now
	}
	message, other := n.tellLocked(), n.clone.other
	n.mu.Unlock()
	if !is {
		n.Logger.Info("no other machine was seen to run as this node for ten minutes", "node", n.Name)
		return
	}
	n.Logger.Warn("another machine runs as this node: one is a copy of the other's disk. Switch the copy off, and join it under a name of its own",
		"node", n.Name, "boot-id", n.Boot, "boot-id-of-other", other)
	n.Cloned(message)
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

func (n *Node) setMissing(missing bool) {
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
