// Package archive reads images from a file: an OCI layout as a tar, or what docker save writes. Newer versions of docker and
// ctr write both in one; then the layout counts.
//
// Nothing is extracted. Open lists which part of the file is which blob, and a blob is read from there when
// somebody wants it, so neither a path nor a link leads anywhere, and what no pod names is never read. Open refuses
// a file that readers could understand differently: a path that is absolute, leads upward or is there twice, a sparse
// file, and two images of one name. What a blob holds is not checked here: whoever writes it to containerd compares it with
// its digest.
//
// A file that is compressed, or cannot be read from the middle, is first written to a file without name
// (Plain), which is gone with the process.
//
// An Archive is safe for concurrent use, as far as its file is.
package archive

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

const (
	// filesAtMost bounds what is kept in memory of a file: a hundred images with a hundred layers each have
	// less.
	filesAtMost = 20_000
	// listLimit bounds index.json and manifest.json, in bytes. They have some hundred for each image.
	listLimit = 1 << 20
)

// File is a file that can be read from the middle.
type File interface {
	io.ReadSeeker
	io.ReaderAt
}

// Archive is a file with images.
type Archive struct {
	file   File
	files  map[string]*io.SectionReader // by path
	links  map[string]string            // old versions of docker save link equal layers
	blobs  map[digest.Digest]*io.SectionReader
	images []image
}

// image is one image of the file. Several may be the same, with different names.
type image struct {
	name   string // with registry and tag; "": the file gives none
	target ocispec.Descriptor
}

// Open lists the images of a tar. It fails with an *engineapi.Error if that is not what the file is.
func Open(file File) (*Archive, error) {
	a := &Archive{file: file, files: map[string]*io.SectionReader{}, links: map[string]string{}, blobs: map[digest.Digest]*io.SectionReader{}}
	if err := a.list(); err != nil {
		return nil, err
	}
	for name, part := range a.files {
		name, isBlob := strings.CutPrefix(name, ocispec.ImageBlobsDir+"/")
		if d := digest.Digest(strings.Replace(name, "/", ":", 1)); isBlob && d.Validate() == nil {
			a.blobs[d] = part
		}
	}
	err := corrupt("it is a tar, but has neither index.json, as an OCI layout, nor manifest.json, as docker save writes")
	if _, ok := a.files[ocispec.ImageIndexFile]; ok { // it has the registry's manifests, which manifest.json beside it does not
		err = a.readLayout()
	} else if _, ok := a.files[savedFile]; ok {
		err = a.readSaved()
	}
	return a, err
}

func corrupt(format string, values ...any) error {
	return engineapi.Errorf(engineapi.Corrupt, format, values...)
}

// list finds where in the file each of its files is.
func (a *Archive) list() error {
	from := tar.NewReader(a.file)
	for n := 0; ; n++ {
		header, err := from.Next()
		switch {
		case errors.Is(err, io.EOF) && n > 0:
			return nil
		case errors.Is(err, tar.ErrHeader) || errors.Is(err, io.EOF):
			return corrupt("it is no tar, or is damaged after %d files", n)
		case errors.Is(err, io.ErrUnexpectedEOF):
			return corrupt("it ends in the middle, after %d files: it was not copied to its end", n)
		case err != nil:
			return fmt.Errorf("read it after %d files: %w", n, err)
		case n == filesAtMost:
			return corrupt("it has more than %d files", filesAtMost)
		}
		if err := a.add(header); err != nil {
			return err
		}
	}
}

// add adds what a header is about. The file is at the start of its content.
func (a *Archive) add(header *tar.Header) error {
	name := path.Clean(header.Name)
	if !filepath.IsLocal(name) {
		return corrupt("it has a file %s, which would be outside of it: somebody has tampered with it", engineapi.Quote(header.Name))
	}
	_, isFile := a.files[name]
	_, isLink := a.links[name]
	switch {
	case header.Typeflag == tar.TypeDir, header.Typeflag == tar.TypeXGlobalHeader:
		return nil
	case isFile || isLink:
		return corrupt("it has the file %s twice, and nobody knows which counts", engineapi.Quote(name))
	case header.Typeflag == tar.TypeSymlink:
		a.links[name] = path.Join(path.Dir(name), header.Linkname)
		return nil
	case header.Typeflag != tar.TypeReg:
		return corrupt("it has %s, which is neither a file nor a folder", engineapi.Quote(name))
	}
	for key := range header.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return corrupt("its file %s is sparse; write it without --sparse", engineapi.Quote(name))
		}
	}
	at, err := a.file.Seek(0, io.SeekCurrent)
	if err != nil {
		return fmt.Errorf("find %s in it: %w", engineapi.Quote(name), err)
	}
	a.files[name] = io.NewSectionReader(a.file, at, header.Size)
	return nil
}

// readLayout reads the images of an OCI layout.
func (a *Archive) readLayout() error {
	var index ocispec.Index
	if err := a.decode(ocispec.ImageIndexFile, &index); err != nil {
		return err
	}
	for _, d := range index.Manifests {
		name := d.Annotations[images.AnnotationImageName]
		if name == "" {
			name = d.Annotations[ocispec.AnnotationRefName]
		}
		if !strings.ContainsAny(name, ":/") {
			name = "" // a tag alone, as skopeo writes it, or nothing
		}
		target := ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}
		if err := a.addImage(name, target); err != nil {
			return err
		}
	}
	return nil
}

// addImage adds an image under a name as people write it.
func (a *Archive) addImage(name string, target ocispec.Descriptor) error {
	if name != "" {
		full, err := engineapi.Normalize(name)
		if err != nil {
			return corrupt("it calls an image %s, which is no name of one", engineapi.Quote(name))
		}
		name = full
	}
	for _, i := range a.images {
		if name != "" && i.name == name && i.target.Digest != target.Digest {
			return corrupt("it has two images of the name %s, and nobody knows which counts", name)
		}
	}
	a.images = append(a.images, image{name, target})
	return nil
}

// decode reads a list of images.
func (a *Archive) decode(name string, into any) error {
	text, err := a.read(name, listLimit)
	if err == nil && json.Unmarshal(text, into) != nil {
		err = corrupt("its %s cannot be read", name)
	}
	return err
}

// read reads a whole file of at most limit bytes.
func (a *Archive) read(name string, limit int64) ([]byte, error) {
	part, ok := a.part(name)
	if !ok {
		return nil, corrupt("its file %s is missing", engineapi.Quote(name))
	}
	return whole(part, name, limit)
}

func whole(part *io.SectionReader, name string, limit int64) ([]byte, error) {
	if part.Size() > limit {
		return nil, corrupt("its %s has %s, and may have %s at most", engineapi.Quote(name), engineapi.Amount(part.Size()), engineapi.Amount(limit))
	}
	text := make([]byte, part.Size())
	if _, err := part.ReadAt(text, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read %s: %w", engineapi.Quote(name), err)
	}
	return text, nil
}

// part returns a file by its path, or that to which a link of this path leads: one link, as docker writes them.
func (a *Archive) part(name string) (*io.SectionReader, bool) {
	name = path.Clean(name)
	if to, ok := a.links[name]; ok {
		name = to
	}
	part, ok := a.files[name]
	return part, ok
}

// Blob returns a blob as the file has it, which need not be what the digest says, and false if it has none.
func (a *Archive) Blob(d digest.Digest) (*io.SectionReader, bool) {
	part, ok := a.blobs[d]
	if !ok {
		return nil, false
	}
	return io.NewSectionReader(part, 0, part.Size()), true // with an offset of its own
}

// Names returns the names of the images, each once, sorted, and how many have none.
func (a *Archive) Names() (names []string, unnamed int) {
	for _, i := range a.images {
		if i.name == "" {
			unnamed++
			continue
		}
		names = append(names, i.name)
	}
	slices.Sort(names)
	return slices.Compact(names), unnamed
}

// Find returns the image that a pod means, false if the file does not have it. A digest in the pod's name of the image
// decides alone: it says what the image is, whatever the file calls it. Otherwise the whole name has to be in the file.
func (a *Archive) Find(name string) (ocispec.Descriptor, bool) {
	_, wanted, byDigest := strings.Cut(name, "@")
	for _, i := range a.images {
		if !byDigest && i.name == name {
			return i.target, true
		}
		if byDigest {
			if d, ok := a.withDigest(i.target, digest.Digest(wanted)); ok {
				return d, true
			}
		}
	}
	return ocispec.Descriptor{}, false
}

// withDigest returns an image, or that of its index for a platform, if it has this digest.
func (a *Archive) withDigest(target ocispec.Descriptor, wanted digest.Digest) (ocispec.Descriptor, bool) {
	if target.Digest == wanted {
		return target, true
	}
	part, ok := a.Blob(target.Digest)
	if !ok || !images.IsIndexType(target.MediaType) {
		return ocispec.Descriptor{}, false
	}
	var index ocispec.Index
	text, err := whole(part, target.Digest.String(), listLimit)
	if err != nil || json.Unmarshal(text, &index) != nil {
		return ocispec.Descriptor{}, false // if a pod means the index, that shows when its digest is compared
	}
	for _, d := range index.Manifests {
		if d.Digest == wanted {
			return ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}, true
		}
	}
	return ocispec.Descriptor{}, false
}
