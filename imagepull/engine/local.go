package engine

import (
	"context"
	"errors"

	"github.com/containerd/errdefs"
)

// local is what the name stands for on this node, if that is complete.
func (e *Engine) local(ctx context.Context, n node, name string) (p parts, here bool, err error) {
	record, err := e.client.ImageService().Get(ctx, name)
	if err != nil {
		return parts{}, false, unlessNotFound(err)
	}
	p, err = e.partsOf(ctx, record.Target, e.look)
	if _, useless := errors.AsType[*Error](err); useless {
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
