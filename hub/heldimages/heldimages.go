// Package heldimages releases what a hub holds in containerd once no hub looks after it: after an uninstall,
// and while the hub is started without a container runtime. Otherwise leases and pins would keep these images
// on the disk for ever.
//
// Note records in the hub's folder, before the first image is held, which containerd is asked to. Release
// needs nothing else, and may be repeated.
package heldimages

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/edgehub-io/edgehub/cache/durable"
	"github.com/edgehub-io/edgehub/imagepull/engine"
)

// retryInterval is when ReleaseFormer tries again: containerd may start after the hub.
const retryInterval = 10 * time.Second

// noteFile has the endpoint of the containerd that may hold images.
func noteFile(root string) string { return filepath.Join(root, "held-images") }

// Note records that a hub with this folder may hold images in the containerd at the endpoint.
func Note(root, endpoint string) error {
	if noted, err := noted(root); err == nil && noted == endpoint {
		return nil
	}
	if err := durable.Write(noteFile(root), []byte(endpoint)); err != nil {
		return fmt.Errorf("record which containerd holds images: %w", err)
	}
	return nil
}

// noted returns the endpoint of Note, or "" if there is none.
func noted(root string) (string, error) {
	text, err := os.ReadFile(noteFile(root))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return string(text), err
}

// Release releases all images that a hub with this folder holds, and returns their names. fallback is the
// endpoint for a folder without a note; if it is empty, too, there is nothing to release. No hub may run
// meanwhile. The error says which command a person can release the images with.
func Release(ctx context.Context, root, fallback string) ([]string, error) {
	endpoint, err := noted(root)
	if endpoint = cmp.Or(endpoint, fallback); endpoint == "" {
		return nil, err
	}
	names, err := releaseAt(ctx, endpoint)
	if err != nil {
		return names, fmt.Errorf("leases and pins keep images on this node, until they are released with `%s`: %w", engine.ReleaseCommand(endpoint), err)
	}
	return names, durable.Remove(noteFile(root))
}

func releaseAt(ctx context.Context, endpoint string) ([]string, error) {
	e, err := engine.New(engine.Options{Address: endpoint})
	if err != nil {
		return nil, err
	}
	names, err := e.ReleaseAll(ctx)
	return names, errors.Join(err, e.Close())
}

// ReleaseFormer does what Release does for a hub that holds no images itself, and says so in the log. It tries
// until it succeeds, or ctx ends.
func ReleaseFormer(ctx context.Context, root string, log *slog.Logger) {
	level := slog.LevelWarn
	_ = wait.PollUntilContextCancel(ctx, retryInterval, true, func(ctx context.Context) (done bool, err error) {
		endpoint, err := noted(root)
		if err == nil && endpoint == "" {
			return true, nil
		}
		names, err := Release(ctx, root, "")
		if len(names) > 0 {
			log.Warn("images that an earlier start held in containerd are not held any more, since this one is without --container-runtime-endpoint",
				"containerd", endpoint, "images", names)
		}
		if err != nil && ctx.Err() == nil {
			log.Log(ctx, level, "images that an earlier start holds in containerd cannot be released, and this one is without --container-runtime-endpoint; it is tried again",
				"containerd", endpoint, "err", err)
			level = slog.LevelDebug
		}
		return err == nil, nil
	})
}
