package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// local is what is held under the name on this node, or else what the name stands for, if
// that is complete.
func (e *Engine) local(ctx context.Context, n node, name string) (p parts, here bool, err error) {
	records, err := e.recordsOf(ctx, name)
	if err != nil {
		return parts{}, false, err
	}
	for _, record := range records {
		if p, here, err = e.completeAt(ctx, n, record.Target); here || err != nil {
			return p, here, err
		}
	}
	return parts{}, false, nil
}

// recordsOf are the records of what is held under the name, and then that of the name.
func (e *Engine) recordsOf(ctx context.Context, name string) ([]images.Image, error) {
	records, err := e.client.ImageService().List(ctx, fmt.Sprintf("labels.%q", holderLabel(name)))
	if err != nil {
		return nil, err
	}
	named, err := e.client.ImageService().Get(ctx, name)
	if err == nil {
		records = append(records, named)
	}
	return records, unlessNotFound(err)
}

func (e *Engine) completeAt(ctx context.Context, n node, target ocispec.Descriptor) (p parts, here bool, err error) {
	p, err = e.partsOf(ctx, target, e.look)
	if _, useless := errors.AsType[*engineapi.Error](err); useless {
		return parts{}, false, nil
	}
	if err != nil {
		return parts{}, false, unlessNotFound(err)
	}
	unpacked, err := e.unpacked(ctx, n, p)
	return p, err == nil && unpacked == len(p.chain), err
}

func unlessNotFound(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}
