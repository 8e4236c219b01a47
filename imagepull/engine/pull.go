package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// pull is one call of Pull.
type pull struct {
	engine   *Engine
	node     node
	name     string
	registry *registry
	progress meter
	awaited  time.Duration     // how long CRI was waited for
	former   []leases.Resource // of the image that the name stood for before, if it is here
}

// Pull returns the image once it is complete on the node, unpacked, known to CRI, and
// held. What the node has of it already is not fetched; an image that is complete is
// good enough if the registry cannot be reached or refuses. The error is an *Error,
// or that of ctx if it has ended.
func (e *Engine) Pull(ctx context.Context, r Request) (Image, error) {
	named, err := parse(r.Image)
	if err != nil {
		return Image{}, err
	}
	ctx = within(ctx)
	image, err := e.pull(ctx, named, r)
	return image, e.failure(ctx, named.String(), err)
}

func (e *Engine) pull(ctx context.Context, named reference.Named, r Request) (Image, error) {
	n, err := e.node(ctx)
	if err != nil {
		return Image{}, err
	}
	name := named.String()
	local, here, err := e.local(ctx, n, name)
	if err != nil {
		return Image{}, err
	}
	if here && digestOf(named) != "" {
		return e.hold(ctx, n, named, local)
	}
	w := &wire{limiter: e.limiter, patience: &patience{window: e.opts.Stall}, fetched: e.opts.Fetched, agent: e.opts.UserAgent}
	defer w.close()
	p := &pull{engine: e, node: n, name: name, registry: newRegistry(ctx, name, n, w, r.Credentials)}
	p.progress.report = r.Progress
	target, err := p.registry.resolve(ctx)
	if err != nil {
		err = p.registry.failure(err)
		if !here || ctx.Err() != nil {
			return Image{}, err
		}
		e.log.Info("image is on the node already, and taken as it is", "image", name, "err", err)
		return e.hold(ctx, n, named, local)
	}
	if here && target.Digest == local.target.Digest {
		return e.hold(ctx, n, named, local)
	}
	if ctx, err = e.lease(ctx, name); err != nil {
		return Image{}, err
	}
	if here {
		p.former = local.resources(n)
	}
	got, err := p.bring(ctx, target)
	if err != nil {
		return Image{}, err
	}
	return e.hold(ctx, n, named, got)
}

// bring fetches and unpacks what is missing.
//
// Layers come one after the other: on a thin line several at a time are no faster,
// and what is complete has been verified and stays, whatever happens to the rest.
func (p *pull) bring(ctx context.Context, target ocispec.Descriptor) (parts, error) {
	image, err := p.documents(ctx, target)
	if err != nil {
		return parts{}, err
	}
	if err := p.engine.dropLeftovers(ctx, p.name, append(image.inProgress(p.node), p.former...)); err != nil {
		return parts{}, err
	}
	unpacked, err := p.engine.unpacked(ctx, p.node, image)
	if err != nil {
		return parts{}, err
	}
	p.progress.expect(image.blobs())
	p.progress.set(image.config, image.config.Size)
	for _, layer := range image.layers[:unpacked] {
		p.progress.set(layer, layer.Size)
	}
	// As CRI does, layers that have been unpacked are not fetched: it may have been
	// told to drop them then.
	if err := p.engine.checkSpace(ctx, p.node, image, unpacked); err != nil {
		return parts{}, err
	}
	fetched := map[digest.Digest]bool{}
	for _, blob := range slices.Concat(image.others, image.layers[unpacked:]) {
		if fetched[blob.Digest] {
			continue
		}
		if err := p.fetch(ctx, blob); err != nil {
			return parts{}, err
		}
		fetched[blob.Digest] = true
	}
	return image, p.engine.unpack(ctx, p.node, image)
}

// documents fetches the index, manifest and configuration of an image. If that fails, what
// has come stays only where the lease has nothing of another image: a registry that has
// the tag stand for another image at each attempt, whose configuration never comes, would
// fill the disk with manifests.
func (p *pull) documents(ctx context.Context, target ocispec.Descriptor) (parts, error) {
	before, err := p.engine.leased(ctx, p.name)
	if err != nil {
		return parts{}, err
	}
	image, err := p.engine.partsOf(ctx, target, p.get)
	if err == nil || len(before) == 0 || slices.Contains(before, contentOf(target)) {
		return image, err
	}
	return parts{}, errors.Join(err, p.engine.dropLeftovers(ctx, p.name, before))
}

// get fetches a manifest or a configuration, and labels it so that containerd keeps
// what it refers to.
func (p *pull) get(ctx context.Context, blob ocispec.Descriptor) error {
	if err := p.fetch(ctx, blob); err != nil {
		return err
	}
	store := p.engine.store()
	_, err := images.SetChildrenMappedLabels(store, images.HandlerFunc(p.engine.children), nil)(ctx, blob)
	return err
}
