package lease

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/leases"
)

// Release releases an image by its name. It is idempotent.
func (l Leases) Release(ctx context.Context, name string) error {
	if err := l.Unpin(ctx, name, nil); err != nil {
		return err
	}
	// The lease is deleted last: Retained finds the image by it even without records.
	return UnlessNotFound(l.Client.LeasesService().Delete(ctx, leases.Lease{ID: leaseID(name)}))
}

// Unpin removes the image's labels from all records except those, and from all what says that it was imported.
func (l Leases) Unpin(ctx context.Context, name string, but []string) error {
	records, err := l.Client.ImageService().List(ctx)
	if err != nil {
		return err
	}
	for _, record := range records {
		var fields []string
		if !slices.Contains(but, record.Name) {
			fields = released(record.Labels, name)
		}
		if record.Labels[ImportLabel(name)] != "" {
			fields = append(fields, "labels."+ImportLabel(name))
		}
		if len(fields) == 0 {
			continue
		}
		record.Labels = nil // labels in the field mask without a value are removed
		_, err := l.Client.ImageService().Update(ctx, record, fields...)
		if err := UnlessNotFound(err); err != nil {
			return fmt.Errorf("unpin %s: %w", record.Name, err)
		}
	}
	return nil
}

// Retained returns the names of the images that are held, and of those whose pulls have left
// something behind, sorted.
func (l Leases) Retained(ctx context.Context) ([]string, error) {
	all, err := l.Client.LeasesService().List(ctx, fmt.Sprintf("labels.%q", retainedLabel))
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, l := range all {
		names[l.Labels[retainedLabel]] = true
	}
	records, err := l.Client.ImageService().List(ctx)
	if err != nil {
		return nil, err
	}
	for _, record := range records {
		for label, name := range record.Labels {
			if strings.HasPrefix(label, retainedLabel+".") {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// ReleaseCommand returns a command line for the shell that releases all images. ctr is the command to ask
// containerd with. What it leaves of labels retains nothing.
func ReleaseCommand(ctr string) string {
	return fmt.Sprintf(`%[1]s leases ls -q | grep ^%[2]s | xargs -r %[1]s leases rm; %[1]s images ls -q 'labels."%[3]s"' | xargs -r -I{} %[1]s images label {} %[4]s= %[3]s=`,
		ctr, leasePrefix, pinLabel, pinnedLabel)
}
