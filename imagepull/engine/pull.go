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

	"github.com/edgehub-io/edgehub/imagepull/engine/imagecontent"
	"github.com/edgehub-io/edgehub/imagepull/engine/lease"
	"github.com/edgehub-io/edgehub/imagepull/engine/registry"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// pull is one call of Pull.
type pull struct {
	engine   *Engine
	node     node
	name     string
	registry *registry.Client
	progress meter
	awaited  time.Duration     // time waited for CRI's own pulls
	former   []leases.Resource // of the previous image of this name, if it is on the node
}

// Pull returns the image once it is complete on the node, unpacked, known to CRI, and retained.
// Content on the node is not fetched again; if the registry cannot be reached or refuses, or it is
// not known how CRI reaches it, a complete image on the node is used. The error is an *Error, or that of ctx.
func (e *Engine) Pull(ctx context.Context, r engineapi.Request) (engineapi.Image, error) {
	named, err := engineapi.Parse(r.Image)
	if err != nil {
		return engineapi.Image{}, err
	}
	ctx = criContext(ctx)
	image, err := e.pull(ctx, named, r)
	return image, e.failure(ctx, named.String(), err)
}

func (e *Engine) pull(ctx context.Context, named reference.Named, r engineapi.Request) (engineapi.Image, error) {
	n, err := e.node(ctx)
	if err != nil {
		return engineapi.Image{}, err
	}
	name := named.String()
	local, here, settled, err := e.local(ctx, n, named)
	if err != nil {
		return engineapi.Image{}, err
	}
	if settled {
		return e.retain(ctx, n, named, local)
	}
	orLocal := func(err error) (engineapi.Image, error) {
		if !here || ctx.Err() != nil {
			return engineapi.Image{}, err
		}
		e.log.Info("image is on the node already, and taken as it is", "image", name, "err", err)
		return e.retain(ctx, n, named, local)
	}
	p, disconnect, err := e.connect(ctx, n, named, r)
	if err != nil {
		return orLocal(err)
	}
	defer disconnect()
	target, err := p.registry.Resolve(ctx)
	if err != nil {
		return orLocal(p.registry.Failure(err))
	}
	if here && target.Digest == local.Target.Digest {
		return e.retain(ctx, n, named, local)
	}
	if ctx, err = e.leases.Create(ctx, name); err != nil {
		return engineapi.Image{}, err
	}
	if here {
		p.former = lease.Resources(local, n.snapshotter)
	}
	got, err := p.fetchAndUnpack(ctx, target)
	if err != nil {
		return engineapi.Image{}, err
	}
	return e.retain(ctx, n, named, got)
}

// connect returns a pull of an image, whose connections disconnect closes.
func (e *Engine) connect(ctx context.Context, n node, named reference.Named, r engineapi.Request) (p *pull, disconnect func(), err error) {
	host := reference.Domain(named)
	s, err := e.settings(ctx, n, host)
	if err != nil {
		return nil, nil, err
	}
	credentials, err := s.credentials(host, r.Credentials)
	if err != nil {
		return nil, nil, err
	}
	transports := registry.NewTransports(e.limiter, e.opts.Stall, e.opts.Fetched, s.proxy)
	p = &pull{engine: e, node: n, name: named.String(), registry: registry.New(ctx, named.String(), s.folders, e.header(s.headers), transports, credentials)}
	p.progress.report = r.Progress
	return p, transports.Close, nil
}

// fetchAndUnpack fetches and unpacks what is missing.
//
// It fetches one layer at a time: on a slow link several are no faster, and complete layers are
// verified and kept if the pull is interrupted.
func (p *pull) fetchAndUnpack(ctx context.Context, target ocispec.Descriptor) (imagecontent.Content, error) {
	image, err := p.documents(ctx, target)
	if err != nil {
		return imagecontent.Content{}, err
	}
	if err := p.engine.leases.DropLeftovers(ctx, p.name, append(lease.InProgress(image, p.node.snapshotter), p.former...)); err != nil {
		return imagecontent.Content{}, err
	}
	return image, p.engine.complete(ctx, p.node, image, &p.progress, p.fetch)
}

// complete fetches and unpacks what is missing of an image.
func (e *Engine) complete(ctx context.Context, n node, image imagecontent.Content, progress *meter, fetch func(context.Context, ocispec.Descriptor) error) error {
	unpacked, err := e.unpacked(ctx, n, image)
	if err != nil {
		return err
	}
	progress.expect(image.Blobs())
	progress.set(image.Config, image.Config.Size)
	for _, layer := range image.Layers[:unpacked] {
		progress.set(layer, layer.Size)
	}
	// Like CRI, it does not fetch unpacked layers: CRI may be configured to discard them after
	// unpacking.
	if err := e.checkSpace(ctx, n, image, unpacked); err != nil {
		return err
	}
	fetched := map[digest.Digest]bool{}
	for _, blob := range slices.Concat(image.Others, image.Layers[unpacked:]) {
		if fetched[blob.Digest] {
			continue
		}
		if err := fetch(ctx, blob); err != nil {
			return err
		}
		fetched[blob.Digest] = true
	}
	return e.unpack(ctx, n, image)
}

// documents fetches the index, manifest and configuration of an image. If that fails, fetched
// documents are kept only if the lease has no resources of another image: otherwise a registry
// could fill the disk by pointing the tag to another image at each attempt.
func (p *pull) documents(ctx context.Context, target ocispec.Descriptor) (imagecontent.Content, error) {
	before, err := p.engine.leases.Leased(ctx, p.name)
	if err != nil {
		return imagecontent.Content{}, err
	}
	image, err := p.engine.reader.PartsOf(ctx, target, p.get)
	if err == nil || len(before) == 0 || slices.Contains(before, lease.ContentOf(target)) {
		return image, err
	}
	return imagecontent.Content{}, errors.Join(err, p.engine.leases.DropLeftovers(ctx, p.name, before))
}

// get fetches a manifest or a configuration, and labels it so that containerd keeps
// what it refers to.
func (p *pull) get(ctx context.Context, blob ocispec.Descriptor) error {
	if err := p.fetch(ctx, blob); err != nil {
		return err
	}
	return p.engine.labelChildren(ctx, blob)
}

func (e *Engine) labelChildren(ctx context.Context, blob ocispec.Descriptor) error {
	_, err := images.SetChildrenMappedLabels(e.store, images.HandlerFunc(e.reader.Children), nil)(ctx, blob)
	return err
}
