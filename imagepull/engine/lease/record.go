package lease

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// Retained images are recorded in containerd:
//
//   - The image's lease has retainedLabel with its name. It retains content and snapshots, even
//     if the records are removed.
//   - Each record has one label for each image that it retains, because two tags may point to
//     the same image: retainedLabel, a dot and the lease's ID.
//   - pinLabel marks a pin that the hub has set. CRI pins images, too.
const (
	retainedLabel = "edgehub.io/prepull"
	pinLabel      = "edgehub.io/prepull-pin"

	// Labels of images that CRI manages, and of those that the kubelet must not remove; CRI
	// before containerd 1.7 ignores the second.
	managedLabel, managed = "io.cri-containerd.image", "managed"
	pinnedLabel, pinned   = "io.cri-containerd.pinned", "pinned"
)

// leasePrefix begins the IDs of all leases.
const leasePrefix = "edgehub-prepull-"

// leaseID returns the ID of an image's lease, which is always the same.
func leaseID(name string) string {
	sum := sha256.Sum256([]byte(name))
	return leasePrefix + hex.EncodeToString(sum[:12])
}

// HolderLabel returns the label of records that retain the image.
func HolderLabel(name string) string { return retainedLabel + "." + leaseID(name) }

// Record creates one of the image's records, or labels an existing one.
func (l Leases) Record(ctx context.Context, image engineapi.Image, name string) error {
	labels := map[string]string{
		managedLabel: managed, pinnedLabel: pinned, pinLabel: image.Name, HolderLabel(image.Name): image.Name,
	}
	record := images.Image{Name: name, Target: image.Target, Labels: labels}
	_, err := l.Client.ImageService().Create(ctx, record)
	if !errdefs.IsAlreadyExists(err) {
		return err
	}
	old, err := l.Client.ImageService().Get(ctx, name)
	if err != nil {
		return err // removed meanwhile; the next attempt creates it
	}
	if old.Labels[pinnedLabel] == pinned && old.Labels[pinLabel] == "" {
		delete(labels, pinLabel) // another program's pin, which must stay
	}
	fields := []string{"target"}
	for label := range labels {
		fields = append(fields, "labels."+label)
	}
	_, err = l.Client.ImageService().Update(ctx, record, fields...)
	return err
}

// IsRetained reports whether a record has all labels that Record would set.
func IsRetained(labels map[string]string, name string) bool {
	return labels[HolderLabel(name)] == name && labels[managedLabel] == managed && labels[pinnedLabel] == pinned
}

// released returns the labels to remove from a record when the image is released.
func released(labels map[string]string, name string) []string {
	mine := HolderLabel(name)
	if labels[mine] == "" {
		return nil
	}
	fields := []string{"labels." + mine}
	for label := range labels {
		if label != mine && strings.HasPrefix(label, retainedLabel+".") {
			return fields
		}
	}
	if labels[pinLabel] != "" {
		fields = append(fields, "labels."+pinLabel, "labels."+pinnedLabel)
	}
	return fields
}

// DigestOf returns the digest in the name, or "" if it has a tag.
func DigestOf(named reference.Named) digest.Digest {
	if d, ok := named.(reference.Digested); ok {
		return d.Digest()
	}
	return ""
}

// RecordNames returns the names of the records that CRI creates for an image. The name in the pod
// is last, so that the kubelet sees the image only when all records exist.
func RecordNames(named reference.Named, target digest.Digest, id string) []string {
	names := []string{id, fmt.Sprintf("%s@%s", named.Name(), target)}
	if DigestOf(named) == "" {
		names = append(names, named.String())
	}
	return names
}
