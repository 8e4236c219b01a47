package engine

import (
	"bytes"
	"context"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engine/imagecontent"
	"github.com/edgehub-io/edgehub/imagepull/engine/registry"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// Measure asks the registry which layers an image has, and returns a function that returns how many bytes of
// them Pull would fetch at that time, as compressed in the registry; it asks only containerd. Neither leaves
// anything on the node, and both may be called during a Pull of the same image. The errors are *Error, or that
// of ctx.
func (e *Engine) Measure(ctx context.Context, r engineapi.Request) (missing func(context.Context) (int64, error), err error) {
	named, err := engineapi.Parse(r.Image)
	if err != nil {
		return nil, err
	}
	image, err := e.measure(criContext(ctx), named, r)
	if err != nil {
		return nil, e.failure(ctx, named.String(), err)
	}
	return func(ctx context.Context) (int64, error) {
		bytes, err := e.missingNow(criContext(ctx), image)
		return bytes, e.failure(ctx, named.String(), err)
	}, nil
}

// missingNow returns how many bytes of an image are neither unpacked nor in containerd's store.
func (e *Engine) missingNow(ctx context.Context, image imagecontent.Content) (int64, error) {
	n, err := e.node(ctx)
	if err != nil {
		return 0, err
	}
	unpacked, err := e.unpacked(ctx, n, image)
	if err != nil {
		return 0, err
	}
	need, err := e.missing(ctx, image, unpacked)
	return need.fetched, err
}

// measure returns the content of the image that Pull would pull.
func (e *Engine) measure(ctx context.Context, named reference.Named, r engineapi.Request) (imagecontent.Content, error) {
	n, err := e.node(ctx)
	if err != nil {
		return imagecontent.Content{}, err
	}
	local, here, settled, err := e.local(ctx, n, named)
	if err != nil || settled {
		return local, err
	}
	p, disconnect, err := e.connect(ctx, n, named, r)
	if err != nil {
		return imagecontent.Content{}, err
	}
	defer disconnect()
	target, err := p.registry.Resolve(ctx)
	if err != nil {
		return imagecontent.Content{}, p.registry.Failure(err)
	}
	if here && target.Digest == local.Target.Digest {
		return local, nil
	}
	d := &documents{Store: e.store, pull: p, fetched: map[digest.Digest][]byte{}}
	return imagecontent.Reader{Store: d}.PartsOf(ctx, target, d.get)
}

// documents are the index, manifest and configuration of an image: those in containerd's store, and those
// of the registry, in memory.
type documents struct {
	content.Store
	pull    *pull
	fetched map[digest.Digest][]byte
}

// get fetches a document that is not in the store.
func (d *documents) get(ctx context.Context, blob ocispec.Descriptor) error {
	if _, err := d.Info(ctx, blob.Digest); !errdefs.IsNotFound(err) {
		return err
	}
	var text bytes.Buffer
	from := &download{pull: d.pull, blob: blob, to: &text}
	if err := from.run(registry.WithBlob(ctx, blob)); err != nil {
		return err
	}
	if blob.Digest.Algorithm().FromBytes(text.Bytes()) != blob.Digest {
		return engineapi.Errorf(engineapi.Corrupt, "what the registry sends as %s is something else; push it again, or look at what stands between here and the registry", blob.Digest)
	}
	d.fetched[blob.Digest] = text.Bytes()
	return nil
}

// ReaderAt reads a document that get has returned.
func (d *documents) ReaderAt(ctx context.Context, blob ocispec.Descriptor) (content.ReaderAt, error) {
	if text, ok := d.fetched[blob.Digest]; ok {
		return inMemory{bytes.NewReader(text)}, nil
	}
	return d.Store.ReaderAt(ctx, blob)
}

type inMemory struct{ *bytes.Reader }

func (inMemory) Close() error { return nil }
