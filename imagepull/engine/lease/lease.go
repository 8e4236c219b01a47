// Package lease retains images in containerd: by a lease for each image, and by labels on its
// records (record.go).
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

// Leases manages leases of containerd. Its methods need a context in the namespace of CRI.
type Leases struct {
	Client *containerd.Client
	Log    *slog.Logger
}

// Create creates the image's lease if necessary, and returns a ctx that adds everything created
// under it to the lease. The lease does not expire: the next pull needs what an interrupted
// one has fetched, whenever that is.
func (l Leases) Create(ctx context.Context, name string) (context.Context, error) {
	id := leaseID(name)
	_, err := l.Client.LeasesService().Create(ctx, leases.WithID(id), leases.WithLabel(retainedLabel, name))
	if err != nil && !errdefs.IsAlreadyExists(err) {
		return nil, fmt.Errorf("create the lease: %w", err)
	}
	return leases.WithLease(ctx, id), nil
}

// Leased returns the resources of the image's lease.
func (l Leases) Leased(ctx context.Context, name string) ([]leases.Resource, error) {
	return l.Client.LeasesService().ListResources(ctx, leases.Lease{ID: leaseID(name)})
}

// Secure sets the resources of the lease to exactly this image: during an interrupted pull the
// tag may have pointed to another one.
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
	_, err = l.removeResources(ctx, lease, there, keep)
	return err
}

// ContentOf returns the resource of a blob.
func ContentOf(blob ocispec.Descriptor) leases.Resource {
	return leases.Resource{ID: blob.Digest.String(), Type: "content"}
}

// Resources returns the resources that retain a complete image; they refer to all others.
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

// InProgress returns the resources of a pull that is not complete.
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

// DropLeftovers removes resources of earlier pulls from the lease that belong to none of the
// images. Otherwise a registry could fill the disk by pointing the tag to another image at
// each pull, and never sending its last layer.
func (l Leases) DropLeftovers(ctx context.Context, name string, keep []leases.Resource) error {
	there, err := l.Leased(ctx, name)
	if err != nil {
		return err
	}
	dropped, err := l.removeResources(ctx, leases.Lease{ID: leaseID(name)}, there, keep)
	if dropped > 0 {
		l.Collect(ctx)
	}
	return err
}

// removeResources removes all resources from the lease except those to keep, and returns how many
// it has removed.
func (l Leases) removeResources(ctx context.Context, lease leases.Lease, there, keep []leases.Resource) (int, error) {
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

// Collect triggers containerd's garbage collection, which otherwise runs at some later time.
// Deleting a lease is the way to trigger it.
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

// IngestRef returns the ingest reference of an incomplete blob. It differs from CRI's: containerd
// allows one writer per reference, and a slow registry must not prevent CRI from fetching the
// same layer from another one.
func IngestRef(blob ocispec.Descriptor) string { return "edgehub-prepull-" + blob.Digest.String() }

// UnlessNotFound returns nil for errdefs.ErrNotFound, and other errors unchanged.
func UnlessNotFound(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}
