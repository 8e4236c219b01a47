package main

import (
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// layoutFolder holds an OCI layout for each kind of image.
const layoutFolder = "images"

// refName is the annotation with which a layout names the version of its index.
const refName = "org.opencontainers.image.ref.name"

// packImages writes a kind of image in two forms: an OCI layout with the index over all
// platforms, and for each platform an archive that `docker load` and `ctr images import`
// read.
func (r release) packImages(kind imageKind, architectures []string) error {
	var images []v1.Image
	for _, architecture := range architectures {
		image, err := r.build(kind, architecture)
		if err != nil {
			return err
		}
		if err := r.describeImage(kind, architecture, image); err != nil {
			return err
		}
		tag, err := name.NewTag(imagePrefix + "/" + kind.name + ":" + r.version)
		if err != nil {
			return err
		}
		file := filepath.Join(r.out, kind.name+"-image-"+r.version+"-linux-"+architecture+".tar")
		if err := tarball.WriteToFile(file, tag, image); err != nil {
			return err
		}
		if err := os.Chmod(file, 0o644); err != nil {
			return err
		}
		images = append(images, image)
	}
	index, err := r.index(kind, images)
	if err != nil {
		return err
	}
	path, err := layout.Write(filepath.Join(r.out, layoutFolder, kind.name), empty.Index)
	if err != nil {
		return err
	}
	return path.AppendIndex(index, layout.WithAnnotations(map[string]string{refName: r.version}))
}
