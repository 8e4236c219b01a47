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

// How what is held is recorded in containerd:
//
//   - the image's lease, with heldLabel that has its name. It keeps content and
//     snapshots, whatever becomes of the records;
//   - each of its records has a label of its own for each image that is held by it,
//     as two tags may stand for the same image: heldLabel, a dot and the lease's ID;
//   - pinLabel stands beside CRI's pin where the pin is ours. CRI pins images, too.
const (
	heldLabel = "edgehub.io/prepull"
	pinLabel  = "edgehub.io/prepull-pin"

	// What CRI knows its images by, and those that kubelet must not remove; a CRI
	// before containerd 1.7 does not know the second.
	managedLabel, managed = "io.cri-containerd.image", "managed"
	pinnedLabel, pinned   = "io.cri-containerd.pinned", "pinned"
)

// leaseID is the same for the same image at any time.
func leaseID(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "edgehub-prepull-" + hex.EncodeToString(sum[:12])
}

// HolderLabel is the label of records that hold the image.
func HolderLabel(name string) string { return heldLabel + "." + leaseID(name) }

// Record makes one of the image's records, or labels the one that is there.
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
		return err // removed meanwhile; the next attempt makes it
	}
	if old.Labels[pinnedLabel] == pinned && old.Labels[pinLabel] == "" {
		delete(labels, pinLabel) // somebody else's pin, and not ours to take away
	}
	fields := []string{"target"}
	for label := range labels {
		fields = append(fields, "labels."+label)
	}
	_, err = l.Client.ImageService().Update(ctx, record, fields...)
	return err
}

// IsHeld reports whether a record has all labels that Record would set.
func IsHeld(labels map[string]string, name string) bool {
	return labels[HolderLabel(name)] == name && labels[managedLabel] == managed && labels[pinnedLabel] == pinned
}

// released is the labels that a record loses once the image is not held any more.
func released(labels map[string]string, name string) []string {
	mine := HolderLabel(name)
	if labels[mine] == "" {
		return nil
	}
	fields := []string{"labels." + mine}
	for label := range labels {
		if label != mine && strings.HasPrefix(label, heldLabel+".") {
			return fields
		}
	}
	if labels[pinLabel] != "" {
		fields = append(fields, "labels."+pinLabel, "labels."+pinnedLabel)
	}
	return fields
}

// DigestOf is the digest in the name, or "" if it has a tag.
func DigestOf(named reference.Named) digest.Digest {
	if d, ok := named.(reference.Digested); ok {
		return d.Digest()
	}
	return ""
}

// RecordNames are those of the records that CRI makes of an image, the one that
// the pod asks for last: kubelet does not see the image before all are there.
func RecordNames(named reference.Named, target digest.Digest, id string) []string {
	names := []string{id, fmt.Sprintf("%s@%s", named.Name(), target)}
	if DigestOf(named) == "" {
		names = append(names, named.String())
	}
	return names
}
