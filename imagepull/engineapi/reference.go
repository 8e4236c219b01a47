package engineapi

import (
	"github.com/distribution/reference"
)

// Normalize returns an image's full name as kubelet and CRI make it, which is also
// the name of containerd's record of it: "nginx" is docker.io/library/nginx:latest,
// and where a reference has both tag and digest, the digest counts. Its error is an
// *Error, and permanent.
func Normalize(image string) (string, error) {
	named, err := Parse(image)
	if err != nil {
		return "", err
	}
	return named.String(), nil
}

// Parse is Normalize, for who needs the parts of the name.
func Parse(image string) (reference.Named, error) {
	named, err := reference.ParseDockerRef(image)
	if err != nil {
		return nil, Errorf(InvalidImageName, "image %s: this is not the name of an image (%s); correct it where the pod is made from", Quote(image), Quote(err.Error()))
	}
	return named, nil
}
