// Package nodestate describes a node to its owner: is the cloud there, do the disks have room, does the
// hub work.
package nodestate

import (
	"context"
	"sync"
	"time"

	"github.com/edgehub-io/edgehub/imagepull/engine/diskspace"
	"github.com/edgehub-io/edgehub/ota/api"
)

const (
	// diskEvery is how often disks are looked at.
	diskEvery = 30 * time.Second
	// diskTimeout is how long containerd may take to answer where it keeps images.
	diskTimeout = 2 * time.Second
)

// Options are where the state comes from. All but Images are required, and safe for concurrent use.
type Options struct {
	Name, Version string // of the node, and of the hub
	// Cloud reports whether the node can use the cloud, and since when.
	Cloud func() (online bool, since time.Time)
	Ready func() error
	// Unregistered returns that the cloud has no Node of this name, and what to do, or "".
	Unregistered func() string
	// Cache returns the number of views, the bytes on disk, and what is wrong, or "".
	Cache        func() (views int, bytes int64, trouble string)
	Certificates func() []api.Certificate // those that expire
	Traffic      func() api.Traffic
	Missing      func() []api.Missing // the pods that the node lacks
	Root         string               // the hub's folder
	// Images returns where images lie, and the space there. Nil: this hub pulls none.
	Images func(context.Context) (folder string, space diskspace.Space, err error)
}

// Node describes a node. It is safe for concurrent use.
type Node struct {
	Options

	mu     sync.Mutex
	looked time.Time // at the disks
	disks  []api.Disk
}

// New returns a Node.
func New(o Options) *Node { return &Node{Options: o} }

// State returns the present state. Disks may be as they were up to half a minute ago.
func (n *Node) State() api.NodeState {
	s := api.NodeState{
		Node: n.Name, Version: n.Version, Time: time.Now(), Traffic: n.Traffic(), Missing: n.Missing(), Pulls: n.Images != nil,
		Disks: n.lookAtDisks(), Certificates: append([]api.Certificate{}, n.Certificates()...),
	}
	s.Online, s.Since = n.Cloud()
	if err := n.Ready(); err != nil {
		s.Ready = err.Error()
	}
	s.Unregistered = n.Unregistered()
	s.Cache.Views, s.Cache.Bytes, s.Cache.Trouble = n.Cache()
	return s
}

// lookAtDisks returns the disks of the hub and of images, once if they are one. A disk that cannot be
// looked at is left out.
func (n *Node) lookAtDisks() []api.Disk {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.disks != nil && time.Since(n.looked).Abs() < diskEvery {
		return n.disks
	}
	n.disks, n.looked = []api.Disk{}, time.Now()
	root, err := diskspace.At(n.Root)
	if err == nil {
		n.disks = append(n.disks, api.Disk{Holds: []string{"hub"}, Path: n.Root, Free: root.Free, Total: root.Total})
	}
	if n.Images == nil {
		return n.disks
	}
	ctx, cancel := context.WithTimeout(context.Background(), diskTimeout)
	defer cancel()
	folder, images, errImages := n.Images(ctx)
	switch {
	case errImages != nil:
	case err == nil && images.ID == root.ID:
		n.disks[0].Holds = append(n.disks[0].Holds, "images")
	default:
		n.disks = append(n.disks, api.Disk{Holds: []string{"images"}, Path: folder, Free: images.Free, Total: images.Total})
	}
	return n.disks
}
