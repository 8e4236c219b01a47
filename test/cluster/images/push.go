package images

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
)

// blobStore is where the registry keeps its blobs.
type blobStore interface {
	registry.BlobHandler
	registry.BlobPutHandler
}

// Push puts an image into the registry. It goes past whatever has been set to
// fail, to be slow or to be refused, and is not counted.
func (r *Registry) Push(ctx context.Context, repository, tag string, image v1.Image) error {
	if err := r.pushImage(ctx, repository, tag, image); err != nil {
		return fmt.Errorf("push image %s: %w", r.Reference(repository, tag), err)
	}
	return nil
}

// PushIndex puts an index and all its images into the registry, as Push does.
func (r *Registry) PushIndex(ctx context.Context, repository, tag string, index v1.ImageIndex) error {
	if err := r.pushIndex(ctx, repository, tag, index); err != nil {
		return fmt.Errorf("push index %s: %w", r.Reference(repository, tag), err)
	}
	return nil
}

func (r *Registry) pushIndex(ctx context.Context, repository, tag string, index v1.ImageIndex) error {
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, one := range manifest.Manifests {
		image, err := index.Image(one.Digest)
		if err != nil {
			return err
		}
		if err := r.pushImage(ctx, repository, one.Digest.String(), image); err != nil {
			return err
		}
	}
	return r.putManifest(ctx, repository, tag, index)
}

func (r *Registry) pushImage(ctx context.Context, repository, reference string, image v1.Image) error {
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	config, err := partial.ConfigLayer(image)
	if err != nil {
		return err
	}
	for _, layer := range append(layers, config) {
		if err := r.putBlob(ctx, repository, layer); err != nil {
			return err
		}
	}
	return r.putManifest(ctx, repository, reference, image)
}

func (r *Registry) putBlob(ctx context.Context, repository string, layer v1.Layer) error {
	digest, err := layer.Digest()
	if err != nil {
		return err
	}
	content, err := layer.Compressed()
	if err != nil {
		return err
	}
	return r.blobs.Put(ctx, repository, digest, content) // closes content
}

func (r *Registry) putManifest(ctx context.Context, repository, reference string, manifest partial.Describable) error {
	content, err := manifest.(partial.WithRawManifest).RawManifest()
	if err != nil {
		return err
	}
	mediaType, err := manifest.MediaType()
	if err != nil {
		return err
	}
	url := r.URL() + "/v2/" + repository + "/manifests/" + reference
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, bytes.NewReader(content))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", string(mediaType))
	var reply reply
	r.content.ServeHTTP(&reply, req)
	if reply.code != http.StatusCreated {
		return fmt.Errorf("the registry answers %d: %s", reply.code, reply.body.Bytes())
	}
	return nil
}

// reply is the answer of a handler that is called without a connection.
type reply struct {
	code   int
	header http.Header
	body   bytes.Buffer
}

func (r *reply) Header() http.Header {
	if r.header == nil {
		r.header = http.Header{}
	}
	return r.header
}

func (r *reply) WriteHeader(code int)        { r.code = code }
func (r *reply) Write(p []byte) (int, error) { return r.body.Write(p) }
