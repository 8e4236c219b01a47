package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
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

// secure makes the lease keep this image, and nothing else: the tag may have stood for
// another one when an earlier pull was cut off.
func (e *Engine) secure(ctx context.Context, n node, name string, p parts) error {
	lease := leases.Lease{ID: leaseID(name)}
	service := e.client.LeasesService()
	keep := []leases.Resource{}
	for _, blob := range []digest.Digest{p.target.Digest, p.manifest.Digest, p.config.Digest} {
		keep = append(keep, leases.Resource{ID: blob.String(), Type: "content"})
	}
	if top := len(p.chain) - 1; top >= 0 {
		keep = append(keep, leases.Resource{ID: p.chain[top].String(), Type: "snapshots/" + n.snapshotter})
	}
	there, err := service.ListResources(ctx, lease)
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
	for _, r := range there {
		if slices.Contains(keep, r) {
			continue
		}
		if err := service.DeleteResource(ctx, lease, r); err != nil {
			return fmt.Errorf("let go of %s: %w", r.ID, err)
		}
	}
	return nil
}
