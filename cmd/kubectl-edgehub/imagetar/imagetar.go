// Package imagetar writes images of registries into a tar that is an OCI layout, for nodes that reach no registry. Of an image for many
// platforms, the tar has what nodes of some platforms pull, and the index as the registry has it, so that its digest stays.
//
// A Source resolves images first: that reads manifests only, so that digests can be signed before anything large is read. Write then
// copies the blobs from the registry into the tar. Each is compared with its digest on the way: a registry that sends anything else
// makes Write fail.
package imagetar

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// imageNameAnnotation is where containerd looks for the name of an image in an OCI layout, and other programs at
// ocispec.AnnotationRefName.
const imageNameAnnotation = "io.containerd.image.name"

// Image is an image as a registry had it when it was resolved.
type Image struct {
	Name   string        // with registry, and tag or digest
	Digest digest.Digest // of the index, or of the manifest if there is none

	source *Source
	repo   name.Repository
	blobs  []blob // the index or manifest first
}

// blob is a part of an image, at most once.
type blob struct {
	ocispec.Descriptor
	content []byte // of a manifest or an index; nil: the registry has it
}

// Size returns the bytes of all that the tar has of the image.
func (i *Image) Size() int64 {
	var sum int64
	for _, b := range i.blobs {
		sum += b.Size
	}
	return sum
}

// File is a file that the tar has beside the layout.
type File struct {
	Name    string
	Content []byte
}

// Write writes a tar with a file, as its first member, and a layout with images, which may be none. It calls progress, often, with how
// many bytes of the images are written, of how many.
func Write(ctx context.Context, to io.Writer, first File, images []*Image, progress func(done, total int64)) error {
	layout, err := json.Marshal(ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion})
	if err != nil {
		return err
	}
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{}}
	for _, i := range images {
		top := i.blobs[0].Descriptor
		top.Annotations = map[string]string{ocispec.AnnotationRefName: i.Name, imageNameAnnotation: i.Name}
		index.Manifests = append(index.Manifests, top)
	}
	list, err := json.Marshal(index)
	if err != nil {
		return err
	}
	w := writer{Writer: tar.NewWriter(to), progress: progress}
	if err := errors.Join(w.file(first.Name, first.Content), w.file(ocispec.ImageLayoutFile, layout)); err != nil {
		return err
	}
	parts := partsOf(images)
	for _, p := range parts {
		w.total += p.Size
	}
	for _, p := range parts {
		if err := w.part(ctx, p); err != nil {
			return fmt.Errorf("image %s: copy %s: %w", p.of.Name, p.Digest, err)
		}
	}
	return errors.Join(w.file(ocispec.ImageIndexFile, list), w.Close())
}

// part is a blob, and an image that has it.
type part struct {
	blob
	of *Image
}

// partsOf returns the blobs of images, each once.
func partsOf(images []*Image) (all []part) {
	seen := map[digest.Digest]bool{}
	for _, i := range images {
		for _, b := range i.blobs {
			if !seen[b.Digest] {
				seen[b.Digest] = true
				all = append(all, part{b, i})
			}
		}
	}
	return all
}

// writer writes the members of a tar.
type writer struct {
	*tar.Writer
	progress    func(done, total int64)
	done, total int64
}

func (w *writer) begin(name string, size int64) error {
	return w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644})
}

func (w *writer) file(name string, content []byte) error {
	err := w.begin(name, int64(len(content)))
	if err == nil {
		_, err = w.Write(content)
	}
	return err
}

func (w *writer) part(ctx context.Context, p part) error {
	from := io.NopCloser(bytes.NewReader(p.content))
	if p.content == nil {
		var err error
		if from, err = p.of.source.open(ctx, p.of.repo, p.Digest); err != nil {
			return err
		}
	}
	defer func() { _ = from.Close() }() // only read
	if err := w.begin(path.Join(ocispec.ImageBlobsDir, p.Digest.Algorithm().String(), p.Digest.Encoded()), p.Size); err != nil {
		return err
	}
	n, err := io.Copy(counter{w}, from)
	if errors.Is(err, tar.ErrWriteTooLong) || err == nil && n != p.Size {
		err = fmt.Errorf("the registry sends another number of bytes than the %d of the manifest", p.Size)
	}
	return err
}

// counter writes a part of an image.
type counter struct{ w *writer }

func (c counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.w.done += int64(n)
	c.w.progress(c.w.done, c.w.total)
	return n, err
}
