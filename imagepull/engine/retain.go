package engine

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"

	"github.com/edgehub-io/edgehub/imagepull/engine/imagecontent"
	"github.com/edgehub-io/edgehub/imagepull/engine/lease"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// hold puts an image that is complete under its lease, and makes its records. A tag that
// stands for another image stays so until Tag: kubelet looks up the tag when it restarts a
// container, and a pod that has not been upgraded must not get the new image then.
func (e *Engine) hold(ctx context.Context, n node, named reference.Named, p imagecontent.Content) (engineapi.Image, error) {
	image := engineapi.Image{Name: named.String(), Target: p.Target, ID: p.Config.Digest.String(), Size: p.Size()}
	if err := e.keep(ctx, n, image.Name, p); err != nil {
		return engineapi.Image{}, err
	}
	names := lease.RecordNames(named, p.Target.Digest, image.ID)
	taken, err := e.isTaken(ctx, image)
	if err != nil {
		return engineapi.Image{}, err
	}
	if taken {
		names = names[:len(names)-1]
	}
	for _, name := range names {
		if err := e.leases().Record(ctx, image, name); err != nil {
			return engineapi.Image{}, fmt.Errorf("record the image as %s: %w", name, err)
		}
	}
	// What was held under this name before is not held any more.
	return image, e.leases().Unpin(ctx, image.Name, names)
}

// isTaken reports whether the image's name stands for another image now.
func (e *Engine) isTaken(ctx context.Context, image engineapi.Image) (bool, error) {
	record, err := e.client.ImageService().Get(ctx, image.Name)
	if err != nil {
		return false, lease.UnlessNotFound(err)
	}
	return record.Target.Digest != image.Target.Digest, nil
}

// Tag has the name of an image that is held stand for it: containers that are created or
// restarted from then on run it. To do so again does nothing. If content is gone the
// error's reason is Gone, and the name is not changed.
func (e *Engine) Tag(ctx context.Context, image engineapi.Image) error {
	brief, cancel := briefContext(ctx)
	defer cancel()
	return e.failure(ctx, image.Name, e.tag(brief, image))
}

func (e *Engine) tag(ctx context.Context, image engineapi.Image) error {
	record, err := e.client.ImageService().Get(ctx, image.Name)
	if lease.UnlessNotFound(err) != nil || err == nil && record.Target.Digest == image.Target.Digest {
		return err
	}
	if _, err := e.reader().PartsOf(ctx, image.Target, e.look); err != nil {
		return goneIfNotFound(err)
	}
	return e.leases().Record(ctx, image, image.Name)
}

// Keep makes sure, without the network, that an image as Pull returned it, in an
// earlier process perhaps, is there and held as it was then. kubelet's garbage
// collection may have removed its records where containerd does not know the pin; it
// may have been unpacked by a snapshotter that is not used any more. If content is
// gone the error's reason is Gone, and the image has to be pulled again.
//
// A tag that stands for another image stays so, and this one is kept by its digest.
func (e *Engine) Keep(ctx context.Context, image engineapi.Image) error {
	named, err := engineapi.Parse(image.Name)
	if err != nil {
		return err
	}
	ctx = criContext(ctx)
	return e.failure(ctx, image.Name, e.keepImage(ctx, named, image))
}

func (e *Engine) keepImage(ctx context.Context, named reference.Named, image engineapi.Image) error {
	n, err := e.node(ctx)
	if err != nil {
		return err
	}
	p, err := e.reader().PartsOf(ctx, image.Target, e.look)
	if err != nil {
		return goneIfNotFound(err)
	}
	if err := e.keep(ctx, n, image.Name, p); err != nil {
		return err
	}
	for _, name := range lease.RecordNames(named, image.Target.Digest, image.ID) {
		old, err := e.client.ImageService().Get(ctx, name)
		if err == nil && (old.Target.Digest != image.Target.Digest || lease.IsHeld(old.Labels, image.Name)) {
			continue
		}
		if lease.UnlessNotFound(err) != nil {
			return err
		}
		if err := e.leases().Record(ctx, image, name); err != nil {
			return fmt.Errorf("record the image as %s: %w", name, err)
		}
	}
	return nil
}

// keep has the image's lease keep it, and looks then whether it is there: only from
// then on nobody can remove it.
func (e *Engine) keep(ctx context.Context, n node, name string, p imagecontent.Content) error {
	ctx, err := e.leases().Create(ctx, name)
	if err != nil {
		return err
	}
	if err := e.leases().Secure(ctx, n.snapshotter, name, p); err != nil {
		return err
	}
	if _, err := e.reader().PartsOf(ctx, p.Target, e.look); err != nil {
		return goneIfNotFound(err)
	}
	if unpacked, err := e.unpacked(ctx, n, p); err != nil || unpacked == len(p.Chain) {
		return err
	}
	return goneIfNotFound(e.unpack(ctx, n, p))
}

func goneIfNotFound(err error) error {
	if errdefs.IsNotFound(err) {
		return engineapi.Errorf(engineapi.Gone, "it was removed from the node (%s); it has to be pulled again", engineapi.Quote(err.Error()))
	}
	return err
}

// Release lets go of an image, by its name: it is not pinned any more, unless by
// somebody else, and its lease is gone. It stays on the node until kubelet wants the
// room. To release what is not held does nothing.
func (e *Engine) Release(ctx context.Context, name string) error {
	brief, cancel := briefContext(ctx)
	defer cancel()
	return e.failure(ctx, name, e.leases().Release(brief, name))
}

// Held returns the names of the images that are held, by this process or an earlier
// one, and of those whose pulls have left something behind, sorted.
func (e *Engine) Held(ctx context.Context) ([]string, error) {
	brief, cancel := briefContext(ctx)
	defer cancel()
	names, err := e.leases().Held(brief)
	return names, e.failure(ctx, "", err)
}
