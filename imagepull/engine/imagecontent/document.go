package imagecontent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

const (
	// DocumentLimit bounds a manifest, an index or a configuration, and every answer of a registry
	// that is no blob, in bytes. Registries need not accept larger manifests (OCI distribution
	// specification, "Pushing Manifests"), and containerd resolves none.
	DocumentLimit = 4 << 20
	// MaxLayers bounds the lists of a manifest or an index. Linux mounts no overlay with more
	// layers (OVL_MAX_STACK in fs/overlayfs/params.h).
	MaxLayers = 500
	// indexesAtMost is how deep indexes may be nested. Builders push indexes with one level; a
	// collection of these has two.
	indexesAtMost = 3
	// blobLimit bounds the size of one layer in bytes, so that no sum of them overflows.
	blobLimit = 1 << 40
)

var errTooMany = fmt.Errorf("it lists more than %d", MaxLayers)

// bounded is a list in a document. UnmarshalJSON fails with errTooMany before it stores more than
// MaxLayers elements: an empty element takes much more memory than text.
type bounded[T any] []T

func (l *bounded[T]) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	open, err := d.Token()
	if err != nil || open == nil { // null
		return err
	}
	if open != json.Delim('[') {
		return fmt.Errorf("%v is not the start of a list", open)
	}
	*l = nil // of duplicate lists the last one counts, as for containerd
	for d.More() {
		if len(*l) == MaxLayers {
			return errTooMany
		}
		var one T
		if err := d.Decode(&one); err != nil {
			return err
		}
		*l = append(*l, one)
	}
	return nil
}

// descriptor has the fields of an OCI descriptor that are read. URLs are not: containerd's client would
// fetch the content from there, without bounds, and with the node's access to networks. Neither is
// data, which would not be checked as fetched content is.
type descriptor struct {
	MediaType string            `json:"mediaType"`
	Digest    digest.Digest     `json:"digest"`
	Size      int64             `json:"size"`
	Platform  *ocispec.Platform `json:"platform"`
}

func (d descriptor) whole() ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size, Platform: d.Platform}
}

func whole(all []descriptor) []ocispec.Descriptor {
	var result []ocispec.Descriptor
	for _, d := range all {
		result = append(result, d.whole())
	}
	return result
}

// readManifest fails with an *Error if its descriptors are invalid.
func (r Reader) readManifest(ctx context.Context, blob ocispec.Descriptor) (config ocispec.Descriptor, layers []ocispec.Descriptor, err error) {
	var manifest struct {
		MediaType string              `json:"mediaType"`
		Config    descriptor          `json:"config"`
		Layers    bounded[descriptor] `json:"layers"`
		Manifests json.RawMessage     `json:"manifests"`
		FSLayers  json.RawMessage     `json:"fsLayers"`
	}
	if err := r.read(ctx, blob, &manifest); err != nil {
		return ocispec.Descriptor{}, nil, err
	}
	if manifest.Manifests != nil || manifest.FSLayers != nil || images.IsIndexType(manifest.MediaType) {
		return ocispec.Descriptor{}, nil, ambiguous(blob)
	}
	config, layers = manifest.Config.whole(), whole(manifest.Layers)
	if err := checkDocument(config); err != nil {
		return ocispec.Descriptor{}, nil, err
	}
	for _, layer := range layers {
		if err := checkBlob(layer); err != nil {
			return ocispec.Descriptor{}, nil, err
		}
	}
	return config, layers, nil
}

func (r Reader) readIndex(ctx context.Context, blob ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	var index struct {
		MediaType string              `json:"mediaType"`
		Manifests bounded[descriptor] `json:"manifests"`
		Config    json.RawMessage     `json:"config"`
		Layers    json.RawMessage     `json:"layers"`
		FSLayers  json.RawMessage     `json:"fsLayers"`
	}
	if err := r.read(ctx, blob, &index); err != nil {
		return nil, err
	}
	if index.Config != nil || index.Layers != nil || index.FSLayers != nil || images.IsManifestType(index.MediaType) {
		return nil, ambiguous(blob)
	}
	return whole(index.Manifests), nil
}

// ambiguous is the failure for a document that is of another kind than its descriptor says, or of two
// kinds: containerd refuses it, since a registry could show it as one or the other.
func ambiguous(blob ocispec.Descriptor) error {
	return engineapi.Errorf(engineapi.Corrupt, "its %s %s has what only another kind of document has, which containerd refuses; push or save it again", kindOf(blob), blob.Digest)
}

// config has the fields of a configuration that are read.
type config struct {
	ocispec.Platform
	RootFS struct {
		DiffIDs bounded[digest.Digest] `json:"diff_ids"`
	} `json:"rootfs"`
}

func (r Reader) readConfig(ctx context.Context, blob ocispec.Descriptor) (c config, err error) {
	err = r.read(ctx, blob, &c)
	return c, err
}

// Children returns the blobs that a document refers to.
func (r Reader) Children(ctx context.Context, blob ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	switch {
	case images.IsIndexType(blob.MediaType):
		return r.readIndex(ctx, blob)
	case images.IsManifestType(blob.MediaType):
		config, layers, err := r.readManifest(ctx, blob)
		return append([]ocispec.Descriptor{config}, layers...), err
	}
	return nil, nil
}

// read reads a document from containerd's store. The document may be larger than in its descriptor.
func (r Reader) read(ctx context.Context, blob ocispec.Descriptor, into any) error {
	from, err := r.Store.ReaderAt(ctx, ocispec.Descriptor{Digest: blob.Digest})
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // only read
	if from.Size() > DocumentLimit {
		return tooLarge(blob.Digest, from.Size())
	}
	text := make([]byte, from.Size())
	if _, err := from.ReadAt(text, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return engineapi.Errorf(engineapi.Corrupt, "its %s %s cannot be read (%s)", kindOf(blob), blob.Digest, engineapi.Quote(err.Error()))
	}
	return nil
}

func kindOf(blob ocispec.Descriptor) string {
	switch {
	case images.IsIndexType(blob.MediaType):
		return "index"
	case images.IsManifestType(blob.MediaType):
		return "manifest"
	}
	return "configuration"
}

// checkDocument fails with an *Error if a manifest, index or configuration must not be fetched.
func checkDocument(d ocispec.Descriptor) error {
	if err := checkBlob(d); err != nil || d.Size <= DocumentLimit {
		return err
	}
	return tooLarge(d.Digest, d.Size)
}

func tooLarge(d digest.Digest, size int64) error {
	return engineapi.Errorf(engineapi.Corrupt, "its %s is said to have %s, and manifests and configurations may have %s at most; push or save it again",
		d, engineapi.Amount(size), engineapi.Amount(DocumentLimit))
}

// checkBlob fails with an *Error if a descriptor is invalid.
func checkBlob(blob ocispec.Descriptor) error {
	if err := blob.Digest.Validate(); err != nil {
		return engineapi.Errorf(engineapi.Corrupt, "it refers to %s, which is no digest (%w); push or save it again", engineapi.Quote(blob.Digest.String()), err)
	}
	if blob.Size <= 0 || blob.Size > blobLimit {
		return engineapi.Errorf(engineapi.Corrupt, "%d bytes are given as the size of its %s; push or save it again", blob.Size, blob.Digest)
	}
	return nil
}
