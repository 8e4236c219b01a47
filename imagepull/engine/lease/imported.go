package lease

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

const (
	// ImportAtMost is how long one import may take, and so how long what it has written stays if its program is
	// killed. No lease can be prolonged.
	ImportAtMost = 6 * time.Hour
	// importedLabel, a dot and the lease's ID are on the record of an image that was imported for a name and that the hub
	// has not retained yet; importedFor is how long that counts. A tag may mean another image by then.
	importedLabel = "edgehub.io/import"
	importedFor   = 24 * time.Hour
)

// ForImport creates a lease of its own for one import, which is none of a name's: only the hub changes these. The
// returned ctx adds everything created under it. done deletes the lease.
func (l Leases) ForImport(ctx context.Context) (_ context.Context, done func(context.Context) error, err error) {
	return l.Client.WithLease(ctx, leases.WithID("edgehub-import-"+rand.Text()), leases.WithExpiration(ImportAtMost))
}

// ImportLabel returns the label of records of images that were imported for a name.
func ImportLabel(name string) string { return importedLabel + "." + leaseID(name) }

// IsImported reports whether a record is that of an image that was imported for a name of late.
func IsImported(record images.Image, name string) bool {
	return record.Labels[ImportLabel(name)] == name && time.Since(record.UpdatedAt) < importedFor
}

// RecordImport creates a record of an image that was imported, or labels the one that is there, if that is of the same
// image. With a label of ImportLabel, the hub takes the image for its name. It returns whether it has created one.
func (l Leases) RecordImport(ctx context.Context, image engineapi.Image, name, label string) (created bool, err error) {
	record := images.Image{Name: name, Target: image.Target, Labels: map[string]string{managedLabel: managed}}
	fields := []string{"labels." + managedLabel}
	if label != "" {
		record.Labels[label] = image.Name
		fields = append(fields, "labels."+label)
	}
	service := l.Client.ImageService()
	if _, err := service.Create(ctx, record); !errdefs.IsAlreadyExists(err) {
		return err == nil, err
	}
	if name == image.ID {
		return false, nil // by another manifest it is the same image
	}
	old, err := service.Get(ctx, name)
	if err == nil && old.Target.Digest != image.Target.Digest {
		err = engineapi.Errorf(engineapi.Other, "%s is another image on this node by now", name)
	}
	if err == nil {
		_, err = service.Update(ctx, record, fields...)
	}
	return false, err
}

// IsPinnedByOthers reports whether another program than the hub keeps an image from being removed: CRI does that to the image of
// sandboxes.
func IsPinnedByOthers(labels map[string]string) bool {
	return labels[pinnedLabel] == pinned && labels[pinLabel] == ""
}
