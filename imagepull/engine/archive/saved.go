package archive

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engine/imagecontent"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// savedFile lists the images that docker save has written.
const savedFile = "manifest.json"

type saved struct {
	Config   string   `json:"Config"`
	RepoTags []string `json:"RepoTags"`
	Layers   []string `json:"Layers"`
}

// readSaved reads the images of docker save. Such a file has no manifest of a registry, whose digest is in no way the one of
// the manifest that is made here. What vouches for the image is its configuration, which has the digest of each
// layer: a pod that names a digest is not served by it.
func (a *Archive) readSaved() error {
	var list []saved
	if err := a.decode(savedFile, &list); err != nil {
		return err
	}
	for i := range list {
		if len(list[i].RepoTags) == 0 { // it was saved by its ID
			a.unnamed++
		}
		for _, name := range list[i].RepoTags {
			if err := a.addImage(name, image{saved: &list[i]}); err != nil {
				return err
			}
		}
	}
	return nil
}

// make makes a manifest: the same each time.
func (a *Archive) make(s *saved) (ocispec.Descriptor, error) {
	text, err := a.read(s.Config, imagecontent.DocumentLimit)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	config := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageConfig, Digest: digest.FromBytes(text), Size: int64(len(text))}
	// docker names the file by its digest, which nothing else of the file protects.
	if said := strings.TrimSuffix(path.Base(s.Config), ".json"); digest.NewDigestFromEncoded(digest.SHA256, said).Validate() == nil && said != config.Digest.Encoded() {
		return ocispec.Descriptor{}, corrupt("its configuration %s is not what its name says: somebody has changed it, or it is damaged", engineapi.Quote(s.Config))
	}
	var c struct {
		RootFS struct {
			DiffIDs []digest.Digest `json:"diff_ids"`
		} `json:"rootfs"`
	}
	if json.Unmarshal(text, &c) != nil || len(c.RootFS.DiffIDs) != len(s.Layers) || len(s.Layers) > imagecontent.MaxLayers {
		return ocispec.Descriptor{}, corrupt("its configuration %s cannot be read, or is for another number of layers than %d", engineapi.Quote(s.Config), len(s.Layers))
	}
	a.made[config.Digest] = section(text)
	manifest := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Config: config}
	for i, name := range s.Layers {
		layer, err := a.layer(name, c.RootFS.DiffIDs[i])
		if err != nil {
			return ocispec.Descriptor{}, err
		}
		manifest.Layers = append(manifest.Layers, layer)
	}
	made, err := json.Marshal(manifest)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	target := ocispec.Descriptor{MediaType: manifest.MediaType, Digest: digest.FromBytes(made), Size: int64(len(made))}
	a.made[target.Digest] = section(made)
	return target, nil
}

// section returns text as a part of a file.
func section(text []byte) *io.SectionReader {
	return io.NewSectionReader(bytes.NewReader(text), 0, int64(len(text)))
}

// layer returns the descriptor of a layer. One that is not compressed has the digest that the configuration says; of
// one that is, as other programs than docker write, the digest is that of what is there, and its content is compared with the
// configuration when it is unpacked.
func (a *Archive) layer(name string, diff digest.Digest) (ocispec.Descriptor, error) {
	part, ok := a.part(name)
	if !ok {
		return ocispec.Descriptor{}, corrupt("its layer %s is missing", engineapi.Quote(name))
	}
	layer := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: diff, Size: part.Size()}
	if err := diff.Validate(); err != nil {
		return ocispec.Descriptor{}, corrupt("its layer %s has no digest", engineapi.Quote(name))
	}
	switch compressionOf(part) {
	case compression.Gzip:
		layer.MediaType = ocispec.MediaTypeImageLayerGzip
	case compression.Zstd:
		layer.MediaType = ocispec.MediaTypeImageLayerZstd
	}
	if layer.MediaType != ocispec.MediaTypeImageLayer {
		var err error
		if layer.Digest, err = digest.FromReader(io.NewSectionReader(part, 0, part.Size())); err != nil {
			return ocispec.Descriptor{}, fmt.Errorf("read layer %s: %w", engineapi.Quote(name), err)
		}
	}
	a.made[layer.Digest] = part
	return layer, nil
}
