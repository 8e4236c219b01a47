package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	home = "https://github.com/edgehub-io/edgehub"
	// imagePrefix is what the manifests in deploy/ have before the image's name.
	imagePrefix = "edgehub"
)

// imageKind is an image without its platform. It runs the first of its programs.
type imageKind struct {
	name        string
	title       string
	description string
	programs    []string
	user        string // UID:GID
}

// imageKinds are all images. The controller needs nothing of its host; the hub runs as root
// because it reads the node's key.
var imageKinds = []imageKind{
	{
		name:        "edgehub-controller",
		title:       "edgehub-controller",
		description: "Upgrades DaemonSets node by node, or tells each node that an upgrade is waiting",
		programs:    []string{"edgehub-controller"},
		user:        "65532:65532",
	},
	{
		name:        "edgehub",
		title:       "edgehub",
		description: "The hub of an edge node: a transparent proxy to its apiserver that serves on without the cloud",
		programs:    []string{"edgehub", "edgehubctl"},
		user:        "0:0",
	},
}

// build makes the image for an architecture.
func (r release) build(kind imageKind, architecture string) (v1.Image, error) {
	var entries []entry
	for _, program := range kind.programs {
		entries = append(entries, entry{path: program, source: r.program(architecture, program), mode: 0o755})
	}
	archive, err := packTar(entries, r.date)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive)), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.DefaultCompression), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: r.date}, CreatedBy: "deploy/dist", Comment: home},
	})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", architecture, v1.Time{Time: r.date}
	if architecture == "arm64" {
		config.Variant = "v8" // the usual name
	}
	config.Config = v1.Config{
		Entrypoint: []string{"/" + kind.programs[0]},
		Env:        []string{"PATH=/"},
		User:       kind.user,
		WorkingDir: "/",
		Labels:     r.labels(kind),
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, err
	}
	return mutate.Annotations(image, r.labels(kind)).(v1.Image), nil
}

// index has the images of a kind for all platforms; a client pulls the one for its own.
func (r release) index(kind imageKind, images []v1.Image) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, image := range images {
		config, err := image.ConfigFile()
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: config.Platform()}})
	}
	return mutate.Annotations(index, r.labels(kind)).(v1.ImageIndex), nil
}

// labels are those that OCI predefines.
func (r release) labels(kind imageKind) map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "title":         kind.title,
		prefix + "description":   kind.description,
		prefix + "version":       r.version,
		prefix + "revision":      r.revision,
		prefix + "created":       r.date.Format(time.RFC3339),
		prefix + "licenses":      license,
		prefix + "url":           home,
		prefix + "source":        home,
		prefix + "documentation": fmt.Sprintf("%s/blob/%s/README.md", home, r.revision),
	}
}
