package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engine/imagecontent"
)

// lease makes sure that the image's lease is there, and returns a ctx under which all
// that is made is kept by it. It has no end: what a pull has fetched when it is cut
// off is needed by the next one, whenever that is.
func (e *Engine) lease(ctx context.Context, name string) (context.Context, error) {
	id := leaseID(name)
	_, err := e.client.LeasesService().Create(ctx, leases.WithID(id), leases.WithLabel(heldLabel, name))
	if err != nil && !errdefs.IsAlreadyExists(err) {
		return nil, fmt.Errorf("create the lease: %w", err)
	}
	return leases.WithLease(ctx, id), nil
}

// leased are the resources of the image's lease.
func (e *Engine) leased(ctx context.Context, name string) ([]leases.Resource, error) {
	return e.client.LeasesService().ListResources(ctx, leases.Lease{ID: leaseID(name)})
}

// secure makes the lease keep this image, and nothing else: the tag may have stood for
// another one when an earlier pull was cut off.
func (e *Engine) secure(ctx context.Context, n node, name string, p imagecontent.Content) error {
	lease := leases.Lease{ID: leaseID(name)}
	service := e.client.LeasesService()
	keep := resources(p, n)
	there, err := e.leased(ctx, name)
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
	_, err = e.letGo(ctx, lease, there, keep)
	return err
}

func contentOf(blob ocispec.Descriptor) leases.Resource {
	return leases.Resource{ID: blob.Digest.String(), Type: "content"}
}

// resources are what keeps an image that is complete: the rest is referred to by it.
func resources(p imagecontent.Content, n node) []leases.Resource {
	var keep []leases.Resource
	for _, blob := range []ocispec.Descriptor{p.Target, p.Manifest, p.Config} {
		keep = append(keep, contentOf(blob))
	}
	if top := len(p.Chain) - 1; top >= 0 {
		keep = append(keep, leases.Resource{ID: p.Chain[top].String(), Type: "snapshots/" + n.snapshotter})
	}
	return keep
}

// inProgress are what a pull of the image makes until it is complete.
func inProgress(p imagecontent.Content, n node) []leases.Resource {
	keep := resources(p, n)
	for _, blob := range p.Blobs() {
		keep = append(keep, contentOf(blob), leases.Resource{ID: ingestRef(blob), Type: "ingests"})
	}
	for _, name := range p.Chain {
		keep = append(keep, leases.Resource{ID: name.String(), Type: "snapshots/" + n.snapshotter})
	}
	return keep
}

// dropLeftovers has the lease let go of what earlier pulls have left that is of none of
// the images. A registry that has the tag stand for another image each time, of which the
// last layer never comes, would fill the disk with the others.
func (e *Engine) dropLeftovers(ctx context.Context, name string, keep []leases.Resource) error {
	there, err := e.leased(ctx, name)
	if err != nil {
		return err
	}
	dropped, err := e.letGo(ctx, leases.Lease{ID: leaseID(name)}, there, keep)
	if dropped > 0 {
		e.collect(ctx)
	}
	return err
}

// letGo removes what is there from the lease, but for what it has to keep, and counts
// what it has removed.
func (e *Engine) letGo(ctx context.Context, lease leases.Lease, there, keep []leases.Resource) (int, error) {
	dropped := 0
	for _, r := range there {
		if slices.Contains(keep, r) {
			continue
		}
		if err := e.client.LeasesService().DeleteResource(ctx, lease, r); err != nil {
			return dropped, fmt.Errorf("let go of %s: %w", r.ID, err)
		}
		dropped++
	}
	return dropped, nil
}

// collectAtMost is how long containerd may take to collect garbage.
const collectAtMost = 5 * time.Minute

// collect has containerd give back the room of what is not needed any more: by itself it
// would do so at some time only. To delete a lease is the way to ask for it.
func (e *Engine) collect(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, collectAtMost)
	defer cancel()
	service := e.client.LeasesService()
	lease, err := service.Create(ctx, leases.WithRandomID(), leases.WithExpiration(collectAtMost))
	if err == nil {
		err = service.Delete(ctx, lease, leases.SynchronousDelete)
	}
	if err != nil {
		e.log.Info("what pulls have left is removed by containerd at some time only", "err", err)
	}
}
