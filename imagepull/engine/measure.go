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
	"github.com/edgehub-io/edgehub/imagepull/engine/lease"
	"github.com/edgehub-io/edgehub/imagepull/engine/registry"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// Measure returns how many bytes of layers Pull would fetch, as compressed in the registry. It reads the
// manifest from the registry, and leaves nothing on the node. It may be called during a Pull of the same
// image. The error is an *Error, or that of ctx.
func (e *Engine) Measure(ctx context.Context, r engineapi.Request) (int64, error) {
	named, err := engineapi.Parse(r.Image)
	if err != nil {
		return 0, err
	}
	ctx = criContext(ctx)
	missing, err := e.measure(ctx, named, r)
	return missing, e.failure(ctx, named.String(), err)
}

func (e *Engine) measure(ctx context.Context, named reference.Named, r engineapi.Request) (int64, error) {
	n, err := e.node(ctx)
	if err != nil {
		return 0, err
	}
	local, here, err := e.local(ctx, n, named.String())
	if err != nil || here && lease.DigestOf(named) != "" {
		return 0, err
	}
	p, disconnect, err := e.connect(ctx, n, named, r)
	if err != nil {
		return 0, err
	}
	defer disconnect()
	target, err := p.registry.Resolve(ctx)
	if err != nil {
		return 0, p.registry.Failure(err)
	}
	if here && target.Digest == local.Target.Digest {
		return 0, nil
	}
	d := &documents{Store: e.store, pull: p, fetched: map[digest.Digest][]byte{}}
	image, err := imagecontent.Reader{Store: d}.PartsOf(ctx, target, d.get)
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
