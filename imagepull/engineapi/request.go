package engineapi

import (
	"fmt"
	"io"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Request is one image to pull.
type Request struct {
	// Image is a reference as it stands in a pod: "nginx", "nginx:1.27",
	// "registry.example/app@sha256:...".
	Image string
	// Credentials are tried in this order; empty: none are sent.
	Credentials []Credential
	// Progress is called now and then while the pull goes on, from one goroutine
	// at a time, and must not block. It may be nil.
	Progress func(Progress)
}

// Credential is what a registry is asked with. It must never be logged; String
// returns where it is from.
type Credential struct {
	Username string
	Password string
	// IdentityToken is an OAuth2 refresh token, in place of a password.
	IdentityToken string
	// Source is where it is from, for people: "secret default/regcred".
	Source string
	// Namespace is that of the secret it is from. Other namespaces must not learn of it.
	// Empty: it is the node's own.
	Namespace string
}

// String keeps a password out of whatever prints a Credential.
func (c Credential) String() string { return c.Source }

// Format keeps it out of all other verbs: some would print the fields.
func (c Credential) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.Source) }

// Progress is how far a pull is, in bytes of the image as it is in the registry.
type Progress struct {
	Done, Total int64
}

// Image is an image that is on the node.
type Image struct {
	// Name is the normalized reference, the name of containerd's image record.
	Name string `json:"name"`
	// Target is the index or manifest.
	Target ocispec.Descriptor `json:"target"`
	// ID is the digest of the image's configuration: what CRI calls the image's ID.
	ID string `json:"id"`
	// Size is what the registry holds of it for this platform, in bytes.
	Size int64 `json:"size"`
}
