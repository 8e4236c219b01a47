package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engine/imagecontent"
	"github.com/edgehub-io/edgehub/imagepull/engine/lease"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// local returns the image that was imported for a name, that is retained under it, or else that the name points
// to, if it is complete on the node. It is settled, so that no registry has to be asked, if the name has a digest, or
// the image was imported.
func (e *Engine) local(ctx context.Context, n node, named reference.Named) (p imagecontent.Content, here, settled bool, err error) {
	records, err := e.recordsOf(ctx, named.String())
	if err != nil {
		return imagecontent.Content{}, false, false, err
	}
	for _, record := range records {
		if p, here, err = e.completeAt(ctx, n, record.Target); here || err != nil {
			return p, here, here && (lease.DigestOf(named) != "" || lease.IsImported(record, named.String())), err
		}
	}
	return imagecontent.Content{}, false, false, nil
}

// recordsOf returns the records that were imported for the name, those that are retained under it, and then that of the name itself.
func (e *Engine) recordsOf(ctx context.Context, name string) ([]images.Image, error) {
	records, err := e.client.ImageService().List(ctx, fmt.Sprintf("labels.%q", lease.HolderLabel(name)), fmt.Sprintf("labels.%q", lease.ImportLabel(name)))
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(records, func(a, b images.Image) int {
		switch first, second := lease.IsImported(a, name), lease.IsImported(b, name); {
		case first == second:
			return b.UpdatedAt.Compare(a.UpdatedAt)
		case first:
			return -1
		}
		return 1
	})
	named, err := e.client.ImageService().Get(ctx, name)
	if err == nil {
		records = append(records, named)
	}
	return records, lease.UnlessNotFound(err)
}

// Imported returns those of these names that an image was imported for and not retained since: Pull takes that, and asks no
// registry. Only who may open containerd's socket can have brought it.
func (e *Engine) Imported(ctx context.Context, names []string) ([]string, error) {
	brief, cancel := briefContext(ctx)
	defer cancel()
	var filters []string
	for _, name := range names {
		filters = append(filters, fmt.Sprintf("labels.%q", lease.ImportLabel(name)))
	}
	records, err := e.client.ImageService().List(brief, filters...)
	if err != nil {
		return nil, e.failure(ctx, "", err)
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return !slices.ContainsFunc(records, func(record images.Image) bool { return lease.IsImported(record, name) })
	}), nil
}

func (e *Engine) completeAt(ctx context.Context, n node, target ocispec.Descriptor) (p imagecontent.Content, here bool, err error) {
	p, err = e.reader.PartsOf(ctx, target, e.look)
	if _, invalid := errors.AsType[*engineapi.Error](err); invalid {
		return imagecontent.Content{}, false, nil
	}
	if err != nil {
		return imagecontent.Content{}, false, lease.UnlessNotFound(err)
	}
	unpacked, err := e.unpacked(ctx, n, p)
	return p, err == nil && unpacked == len(p.Chain), err
}

// look is a get for PartsOf that fetches nothing. It fails with errdefs.ErrNotFound.
func (e *Engine) look(ctx context.Context, blob ocispec.Descriptor) error {
	_, err := e.store.Info(ctx, blob.Digest)
	return err
}

// unpacked counts the layers that have been unpacked, from the lowest up.
func (e *Engine) unpacked(ctx context.Context, n node, p imagecontent.Content) (int, error) {
	for i, name := range slices.Backward(p.Chain) {
		_, err := e.client.SnapshotService(n.snapshotter).Stat(ctx, name.String())
		if err == nil {
			return i + 1, nil
		}
		if !errdefs.IsNotFound(err) {
			return 0, err
		}
	}
	return 0, nil
}
