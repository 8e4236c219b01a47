// Package archive reads images from a file: an OCI layout as a tar, or what docker save writes. Newer versions of docker and
// ctr write both in one; then the layout counts.
//
// Nothing is extracted. Open lists which part of the file is which of its files, and a blob is read from there when
// somebody wants it, so neither a path nor a link leads anywhere, and what no pod names is never read. Open refuses
// a file that readers could understand differently: a path that is absolute, leads upward or is there twice, and two
// images of one name. What a blob holds is not checked here: whoever writes it to containerd compares it with its digest.
//
// A file that is compressed, or cannot be read from the middle, is first written to a file without name
// (Plain), which is gone with the process.
//
// An Archive is for one goroutine.
package archive

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engine/imagecontent"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

const (
	// filesAtMost and pathLimit, in bytes, bound what is kept in memory of a file: a hundred images with a hundred layers
	// each have less. A tar may have paths of a megabyte.
	filesAtMost, pathLimit = 20_000, 1024
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
	file    File
	files   map[string]*io.SectionReader        // by path
	links   map[string]string                   // old versions of docker save link equal layers
	made    map[digest.Digest]*io.SectionReader // blobs of docker save, which has them under other paths, or not at all
	images  map[string]image                    // by name, with registry and tag
	unnamed int
}

// image is one image of the file: either of an OCI layout, or of docker save.
type image struct {
	target ocispec.Descriptor
	saved  *saved
}

// Open lists the images of a tar. It fails with an *engineapi.Error if that is not what the file is.
func Open(file File) (*Archive, error) {
	a := &Archive{file: file, files: map[string]*io.SectionReader{}, links: map[string]string{}, made: map[digest.Digest]*io.SectionReader{}, images: map[string]image{}}
	if err := a.list(); err != nil {
		return nil, err
	}
	err := corrupt("it is a tar, but has neither index.json, as an OCI layout, nor manifest.json, as docker save writes: it is something else, or was not copied to its end")
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
		case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.EINVAL): // where it is said to end, no file system has anything
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
	if len(name) > pathLimit || len(header.Linkname) > pathLimit {
		return corrupt("it has a path of more than %d bytes, %s", pathLimit, engineapi.Quote(name))
	}
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
		if err := a.addImage(name, image{target: ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}}); err != nil {
			return err
		}
	}
	return nil
}

// addImage adds an image under a name as people write it. What is no name of an image is none.
func (a *Archive) addImage(name string, i image) error {
	full := ""
	if name != "" {
		full, _ = engineapi.Normalize(name)
	}
	if full == "" {
		a.unnamed++
		return nil
	}
	if old, ok := a.images[full]; ok && (old.target.Digest != i.target.Digest || old.saved != i.saved) {
		return corrupt("it has two images of the name %s, and nobody knows which counts", full)
	}
	a.images[full] = i
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

// Member returns a whole file that is about the images, as somebody else has written it, and false if there is none of this name. A
// link does not stand for it. It fails with an *engineapi.Error if it is one, or has more than limit bytes.
func (a *Archive) Member(name string, limit int64) (text []byte, ok bool, err error) {
	if _, isLink := a.links[name]; isLink {
		return nil, false, corrupt("its %s is a link: somebody has tampered with it", name)
	}
	part, ok := a.files[name]
	if !ok {
		return nil, false, nil
	}
	text, err = whole(part, name, limit)
	return text, err == nil, err
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
	part, ok := a.made[d]
	if !ok && d.Validate() == nil {
		part, ok = a.part(path.Join(ocispec.ImageBlobsDir, d.Algorithm().String(), d.Encoded()))
	}
	if !ok {
		return nil, false
	}
	return io.NewSectionReader(part, 0, part.Size()), true // with an offset of its own
}

// Names returns the names of the images, sorted, and how many have none.
func (a *Archive) Names() (names []string, unnamed int) {
	return slices.Sorted(maps.Keys(a.images)), a.unnamed
}

// Find returns the image that a pod means, false if the file does not have it. A digest in the pod's name of the image
// decides alone: it says what the image is, whatever the file calls it, and also in an index. Otherwise the whole name has to
// be in the file. It fails with an *engineapi.Error if the image cannot be read.
func (a *Archive) Find(name string) (_ ocispec.Descriptor, ok bool, err error) {
	if _, wanted, byDigest := strings.Cut(name, "@"); byDigest {
		return a.document(digest.Digest(wanted))
	}
	i, ok := a.images[name]
	if i.saved != nil {
		i.target, err = a.make(i.saved)
	}
	return i.target, ok, err
}

// document returns a manifest or an index, which need not say its type.
func (a *Archive) document(d digest.Digest) (_ ocispec.Descriptor, ok bool, err error) {
	part, ok := a.Blob(d)
	if !ok {
		return ocispec.Descriptor{}, false, nil
	}
	text, err := whole(part, d.String(), imagecontent.DocumentLimit)
	var says struct {
		MediaType string          `json:"mediaType"`
		Manifests json.RawMessage `json:"manifests"`
	}
	if err == nil && json.Unmarshal(text, &says) != nil {
		err = corrupt("its %s cannot be read; it is damaged, or somebody has tampered with it", d)
	}
	if says.MediaType == "" {
		says.MediaType = ocispec.MediaTypeImageManifest
		if says.Manifests != nil {
			says.MediaType = ocispec.MediaTypeImageIndex
		}
	}
	return ocispec.Descriptor{MediaType: says.MediaType, Digest: d, Size: part.Size()}, true, err
}
