// Package lease keeps images in containerd: by a lease for each, and by labels of its records
// (record.go).
package lease

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engine/imagecontent"
)

// Leases is containerd's. Its methods need a context in the namespace of CRI.
type Leases struct {
	Client *containerd.Client
	Log    *slog.Logger
}

// Create makes sure that the image's lease is there, and returns a ctx under which all
// that is made is kept by it. It has no end: what a pull has fetched when it is cut
// off is needed by the next one, whenever that is.
func (l Leases) Create(ctx context.Context, name string) (context.Context, error) {
	id := leaseID(name)
	_, err := l.Client.LeasesService().Create(ctx, leases.WithID(id), leases.WithLabel(heldLabel, name))
	if err != nil && !errdefs.IsAlreadyExists(err) {
		return nil, fmt.Errorf("create the lease: %w", err)
	}
	return leases.WithLease(ctx, id), nil
}

// Leased are the resources of the image's lease.
func (l Leases) Leased(ctx context.Context, name string) ([]leases.Resource, error) {
	return l.Client.LeasesService().ListResources(ctx, leases.Lease{ID: leaseID(name)})
}

// Secure makes the lease keep this image, and nothing else: the tag may have stood for
// another one when an earlier pull was cut off.
func (l Leases) Secure(ctx context.Context, snapshotter, name string, p imagecontent.Content) error {
	lease := leases.Lease{ID: leaseID(name)}
	service := l.Client.LeasesService()
	keep := Resources(p, snapshotter)
	there, err := l.Leased(ctx, name)
	if err != nil {
		return err
	}
	for _, r := range keep {
		if slices.Contains(there, r) {
			continue // each is a write, which containerd syncs
		}
		if err := service.AddResource(ctx, lease, r); err != nil {
			return fmt.Errorf("keep %s: %w", r.ID, err)
		}
	}
	_, err = l.letGo(ctx, lease, there, keep)
	return err
}

// ContentOf is the resource that a blob is.
func ContentOf(blob ocispec.Descriptor) leases.Resource {
	return leases.Resource{ID: blob.Digest.String(), Type: "content"}
}

// Resources are what keeps an image that is complete: the rest is referred to by it.
func Resources(p imagecontent.Content, snapshotter string) []leases.Resource {
	var keep []leases.Resource
	for _, blob := range []ocispec.Descriptor{p.Target, p.Manifest, p.Config} {
		keep = append(keep, ContentOf(blob))
	}
	if top := len(p.Chain) - 1; top >= 0 {
		keep = append(keep, leases.Resource{ID: p.Chain[top].String(), Type: "snapshots/" + snapshotter})
	}
	return keep
}

// InProgress are what a pull of the image makes until it is complete.
func InProgress(p imagecontent.Content, snapshotter string) []leases.Resource {
	keep := Resources(p, snapshotter)
	for _, blob := range p.Blobs() {
		keep = append(keep, ContentOf(blob), leases.Resource{ID: IngestRef(blob), Type: "ingests"})
	}
	for _, name := range p.Chain {
		keep = append(keep, leases.Resource{ID: name.String(), Type: "snapshots/" + snapshotter})
	}
	return keep
}

// DropLeftovers removes from the lease what earlier pulls have left that belongs to none of
// the images. A registry that has the tag stand for another image each time, of which the
// last layer never comes, would fill the disk with the others.
func (l Leases) DropLeftovers(ctx context.Context, name string, keep []leases.Resource) error {
	there, err := l.Leased(ctx, name)
	if err != nil {
		return err
	}
	dropped, err := l.letGo(ctx, leases.Lease{ID: leaseID(name)}, there, keep)
	if dropped > 0 {
		l.Collect(ctx)
	}
	return err
}

// letGo removes what is there from the lease, but for what it has to keep, and counts
// what it has removed.
func (l Leases) letGo(ctx context.Context, lease leases.Lease, there, keep []leases.Resource) (int, error) {
	dropped := 0
	for _, r := range there {
		if slices.Contains(keep, r) {
			continue
		}
		if err := l.Client.LeasesService().DeleteResource(ctx, lease, r); err != nil {
			return dropped, fmt.Errorf("let go of %s: %w", r.ID, err)
		}
		dropped++
	}
	return dropped, nil
}

// collectAtMost is how long containerd may take to collect garbage.
const collectAtMost = 5 * time.Minute

// Collect has containerd give back the room of what is not needed any more: by itself it
// would do so at some time only. To delete a lease is the way to ask for it.
func (l Leases) Collect(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, collectAtMost)
	defer cancel()
	service := l.Client.LeasesService()
	lease, err := service.Create(ctx, leases.WithRandomID(), leases.WithExpiration(collectAtMost))
	if err == nil {
		err = service.Delete(ctx, lease, leases.SynchronousDelete)
	}
	if err != nil {
		l.Log.Info("what pulls have left is removed by containerd at some time only", "err", err)
	}
}

// IngestRef names what containerd has of a blob that is not complete. It is not CRI's
// name for it: containerd lets only one write under a name, and a registry that is slow
// with a layer here must not keep CRI from fetching the same layer elsewhere.
func IngestRef(blob ocispec.Descriptor) string { return "edgehub-prepull-" + blob.Digest.String() }

// UnlessNotFound returns nil for errdefs.ErrNotFound, and other errors as they are.
func UnlessNotFound(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}
