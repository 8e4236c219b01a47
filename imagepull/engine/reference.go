package engine

import (
	"fmt"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
)

// Normalize returns an image's full name as kubelet and CRI make it, which is also
// the name of containerd's record of it: "nginx" is docker.io/library/nginx:latest,
// and where a reference has both tag and digest, the digest counts. Its error is an
// *Error, and permanent.
func Normalize(image string) (string, error) {
	named, err := parse(image)
	if err != nil {
		return "", err
	}
	return named.String(), nil
}

func parse(image string) (reference.Named, error) {
	named, err := reference.ParseDockerRef(image)
	if err != nil {
		return nil, errorf(InvalidImageName, "image %s: this is not the name of an image (%s); correct it where the pod is made from", quote(image), quote(err.Error()))
	}
	return named, nil
}

// digestOf is the digest in the name, or "" if it has a tag.
func digestOf(named reference.Named) digest.Digest {
	if d, ok := named.(reference.Digested); ok {
		return d.Digest()
	}
	return ""
}

// recordNames are those of the records that CRI makes of an image, the one that
// the pod asks for last: kubelet does not see the image before all are there.
func recordNames(named reference.Named, target digest.Digest, id string) []string {
	names := []string{id, fmt.Sprintf("%s@%s", named.Name(), target)}
	if digestOf(named) == "" {
		names = append(names, named.String())
	}
	return names
}
