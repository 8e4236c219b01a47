package hub

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

// disks are those of the hub and of images. It is safe for concurrent use.
type disks struct {
	root string // the hub's folder
	// images returns where images lie, and the space there. Nil: this hub pulls none.
	images func(context.Context) (folder string, space diskspace.Space, err error)

	mu     sync.Mutex
	looked time.Time
	list   []api.Disk
}

// look returns the disks, once if they are one, as they were up to half a minute ago. A disk that cannot be looked at is
// left out.
func (d *disks) look() []api.Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.list != nil && time.Since(d.looked).Abs() < diskEvery {
		return d.list
	}
	d.list, d.looked = []api.Disk{}, time.Now()
	root, err := diskspace.At(d.root)
	if err == nil {
		d.list = append(d.list, api.Disk{Holds: []string{"hub"}, Path: d.root, Free: root.Free, Total: root.Total})
	}
	if d.images == nil {
		return d.list
	}
	ctx, cancel := context.WithTimeout(context.Background(), diskTimeout)
	defer cancel()
	folder, images, errImages := d.images(ctx)
	switch {
	case errImages != nil:
	case err == nil && images.ID == root.ID:
		d.list[0].Holds = append(d.list[0].Holds, "images")
	default:
		d.list = append(d.list, api.Disk{Holds: []string{"images"}, Path: folder, Free: images.Free, Total: images.Total})
	}
	return d.list
}
