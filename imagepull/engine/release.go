package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/leases"
)

// Release lets go of an image, by its name: it is not pinned any more, unless by
// somebody else, and its lease is gone. It stays on the node until kubelet wants the
// room. To release what is not held does nothing.
func (e *Engine) Release(ctx context.Context, name string) error {
	brief, cancel := briefly(ctx)
	defer cancel()
	return e.failure(ctx, name, e.release(brief, name))
}

func (e *Engine) release(ctx context.Context, name string) error {
	if err := e.unpin(ctx, name, nil); err != nil {
		return err
	}
	// The lease is what Held knows the image by, if all records are gone: it goes last.
	return unlessNotFound(e.client.LeasesService().Delete(ctx, leases.Lease{ID: leaseID(name)}))
}

// unpin has no records hold the image but those.
func (e *Engine) unpin(ctx context.Context, name string, but []string) error {
	records, err := e.client.ImageService().List(ctx)
	if err != nil {
		return err
	}
	for _, record := range records {
		fields := released(record.Labels, name)
		if len(fields) == 0 || slices.Contains(but, record.Name) {
			continue
		}
		record.Labels = nil // a label that is listed and has no value is removed
		_, err := e.client.ImageService().Update(ctx, record, fields...)
		if err := unlessNotFound(err); err != nil {
			return fmt.Errorf("unpin %s: %w", record.Name, err)
		}
	}
	return nil
}

// Held returns the names of the images that are held, by this process or an earlier
// one, and of those whose pulls have left something behind, sorted.
func (e *Engine) Held(ctx context.Context) ([]string, error) {
	brief, cancel := briefly(ctx)
	defer cancel()
	names, err := e.held(brief)
	return names, e.failure(ctx, "", err)
}

func (e *Engine) held(ctx context.Context) ([]string, error) {
	all, err := e.client.LeasesService().List(ctx, fmt.Sprintf("labels.%q", heldLabel))
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, l := range all {
		names[l.Labels[heldLabel]] = true
	}
	records, err := e.client.ImageService().List(ctx)
	if err != nil {
		return nil, err
	}
	for _, record := range records {
		for label, name := range record.Labels {
			if strings.HasPrefix(label, heldLabel+".") {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}
