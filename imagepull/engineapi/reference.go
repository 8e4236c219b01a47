package engineapi

import "github.com/distribution/reference"

// Normalize returns an image's full name, which is also the name of containerd's record. Like the
// kubelet and CRI, it turns "nginx" into docker.io/library/nginx:latest, and drops the tag of a
// reference that also has a digest. Its error is a permanent *Error.
func Normalize(image string) (string, error) {
	named, err := Parse(image)
	if err != nil {
		return "", err
	}
	return named.String(), nil
}

// Parse is Normalize for callers that need the parts of the name.
func Parse(image string) (reference.Named, error) {
	named, err := reference.ParseDockerRef(image)
	if err != nil {
		return nil, Errorf(InvalidImageName, "image %s: this is not the name of an image (%s); correct it where the pod is made from", Quote(image), Quote(err.Error()))
	}
	return named, nil
}
