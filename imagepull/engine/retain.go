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

// retain puts a complete image under its lease, and creates its records. A tag that points to
// another image is not changed before Tag: the kubelet resolves the tag when it restarts a
// container, and a pod that has not been upgraded must not get the new image.
func (e *Engine) retain(ctx context.Context, n node, named reference.Named, p imagecontent.Content) (engineapi.Image, error) {
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
		if err := e.leases.Record(ctx, image, name); err != nil {
			return engineapi.Image{}, fmt.Errorf("record the image as %s: %w", name, err)
		}
	}
	// Other images that were retained under this name are released, and what was imported for it counts once.
	return image, e.leases.Unpin(ctx, image.Name, names)
}

// isTaken reports whether the image's name points to another image now.
func (e *Engine) isTaken(ctx context.Context, image engineapi.Image) (bool, error) {
	record, err := e.client.ImageService().Get(ctx, image.Name)
	if err != nil {
		return false, lease.UnlessNotFound(err)
	}
	return record.Target.Digest != image.Target.Digest, nil
}

// Tag points the name of a retained image to it: containers that are created or restarted from
// then on run it. Tag is idempotent. If content is missing, the error's reason is Gone, and
// the name is not changed.
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
	if _, err := e.reader.PartsOf(ctx, image.Target, e.look); err != nil {
		return goneIfNotFound(err)
	}
	return e.leases.Record(ctx, image, image.Name)
}

// Find returns the image that a name points to on the node, without the network. If it is not
// complete there, the error's reason is Gone.
func (e *Engine) Find(ctx context.Context, name string) (engineapi.Image, error) {
	brief, cancel := briefContext(ctx)
	defer cancel()
	image, err := e.find(brief, name)
	return image, e.failure(ctx, name, err)
}

func (e *Engine) find(ctx context.Context, name string) (engineapi.Image, error) {
	n, err := e.node(ctx)
	if err != nil {
		return engineapi.Image{}, err
	}
	record, err := e.client.ImageService().Get(ctx, name)
	if errdefs.IsNotFound(err) {
		return engineapi.Image{}, engineapi.Errorf(engineapi.Gone, "it is not on the node")
	}
	if err != nil {
		return engineapi.Image{}, err
	}
	p, here, err := e.completeAt(ctx, n, record.Target)
	if err == nil && !here {
		err = engineapi.Errorf(engineapi.Gone, "it is not complete on the node; it has to be pulled again")
	}
	return engineapi.Image{Name: name, Target: p.Target, ID: p.Config.Digest.String(), Size: p.Size()}, err
}

// Keep restores, without the network, the state of an image after Pull, perhaps by an earlier
// process. The kubelet's garbage collection may have removed its records, if this containerd
// does not support pinning; or the image was unpacked by a snapshotter that is no longer
// used. If content is missing, the error's reason is Gone, and the image must be pulled again.
//
// A tag that points to another image is not changed; this image is retained by its digest.
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
	p, err := e.reader.PartsOf(ctx, image.Target, e.look)
	if err != nil {
		return goneIfNotFound(err)
	}
	if err := e.keep(ctx, n, image.Name, p); err != nil {
		return err
	}
	for _, name := range lease.RecordNames(named, image.Target.Digest, image.ID) {
		old, err := e.client.ImageService().Get(ctx, name)
		if err == nil && (old.Target.Digest != image.Target.Digest || lease.IsRetained(old.Labels, image.Name)) {
			continue
		}
		if lease.UnlessNotFound(err) != nil {
			return err
		}
		if err := e.leases.Record(ctx, image, name); err != nil {
			return fmt.Errorf("record the image as %s: %w", name, err)
		}
	}
	return nil
}

// keep adds the image to its lease, and only then checks that it is complete: before that,
// containerd's garbage collection may remove content.
func (e *Engine) keep(ctx context.Context, n node, name string, p imagecontent.Content) error {
	ctx, err := e.leases.Create(ctx, name)
	if err != nil {
		return err
	}
	if err := e.leases.Secure(ctx, n.snapshotter, name, p); err != nil {
		return err
	}
	if _, err := e.reader.PartsOf(ctx, p.Target, e.look); err != nil {
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

// Release removes an image's lease and, unless another program has set it, its pin. The image
// stays on the node until the kubelet's garbage collection removes it. Release is idempotent.
func (e *Engine) Release(ctx context.Context, name string) error {
	brief, cancel := briefContext(ctx)
	defer cancel()
	return e.failure(ctx, name, e.leases.Release(brief, name))
}

// Retained returns the names of retained images, and of those with leftovers of incomplete pulls,
// of this process and earlier ones, sorted.
func (e *Engine) Retained(ctx context.Context) ([]string, error) {
	brief, cancel := briefContext(ctx)
	defer cancel()
	names, err := e.leases.Retained(brief)
	return names, e.failure(ctx, "", err)
}

// ReleaseAll releases all images that Retained returns, and returns the names of those that it has released.
// A runtime that is not containerd retains none.
func (e *Engine) ReleaseAll(ctx context.Context) (released []string, err error) {
	brief, cancel := briefContext(ctx)
	defer cancel()
	names, err := e.leases.Retained(brief)
	if errdefs.IsNotImplemented(err) {
		return nil, nil
	}
	for _, name := range names {
		if err = e.leases.Release(brief, name); err != nil {
			break
		}
		released = append(released, name)
	}
	return released, e.failure(ctx, "", err)
}

// ReleaseCommand returns a command line that does what ReleaseAll does, for people, with the ctr of any version.
func ReleaseCommand(address string) string {
	return lease.ReleaseCommand("ctr -a " + socket(address) + " -n " + namespace)
}
