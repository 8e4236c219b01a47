// Package engineapi has the types of the engine's requests and answers: which image to pull with which
// credentials, the progress, and the image or the failure. It does not depend on containerd's client.
package engineapi

import (
	"fmt"
	"io"
	"strings"

	"github.com/distribution/reference"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Request is one image to pull.
type Request struct {
	// Image is a reference as in a pod: "nginx", "nginx:1.27", "registry.example/app@sha256:...".
	Image string
	// Credentials are tried in this order. If there are none, the pull is anonymous.
	Credentials []Credential
	// Progress is called during the pull, from one goroutine at a time, and must not block. It may
	// be nil.
	Progress func(Progress)
}

// Credential authenticates to a registry. It must never be logged; String and Format print only its
// source.
type Credential struct {
	Username string
	Password string
	// IdentityToken is an OAuth2 refresh token, in place of a password.
	IdentityToken string
	// Source is the origin for people: "secret default/regcred".
	Source string
	// Namespace is that of the secret, of which other namespaces must not learn. It is empty for the
	// node's own credentials.
	Namespace string
}

func (c Credential) String() string { return c.Source }

// Format is for verbs that ignore String and would print the fields.
func (c Credential) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.Source) }

// Progress is the progress of a pull, in bytes as compressed in the registry.
type Progress struct {
	Done, Total int64
}

// Image is an image that is on the node.
type Image struct {
	// Name is the normalized reference, which is the name of containerd's image record.
	Name string `json:"name"`
	// Target is the index or manifest.
	Target ocispec.Descriptor `json:"target"`
	// ID is CRI's image ID, the digest of the image's configuration.
	ID string `json:"id"`
	// Size is the compressed size for this platform, in bytes.
	Size int64 `json:"size"`
}

// HasRecord reports whether containerd's record of this name may be one of the image's: that of its
// name, its ID, or its digest.
func (i Image) HasRecord(name string) bool {
	return name == i.Name || name == i.ID || strings.HasSuffix(name, "@"+i.Target.Digest.String())
}

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
