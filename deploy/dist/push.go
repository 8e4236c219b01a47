package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// push copies all images of the release in folder to REGISTRY/PREFIX/NAME:VERSION, for all
// platforms, and prints their references there. It uses the credentials of `docker login`.
// Pushing twice does no harm.
func push(ctx context.Context, folder, prefix string, plain bool, out io.Writer) error {
	var options []name.Option
	if plain {
		options = append(options, name.Insecure)
	}
	for _, kind := range imageKinds {
		reference, err := pushKind(ctx, filepath.Join(folder, layoutFolder, kind.name), prefix+"/"+kind.name, options)
		if err != nil {
			return fmt.Errorf("push %s: %w", kind.name, err)
		}
		fmt.Fprintln(out, reference)
	}
	return nil
}

// pushKind returns the reference with tag and digest.
func pushKind(ctx context.Context, folder, repository string, options []name.Option) (string, error) {
	top, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return "", err
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		return "", err
	}
	if len(manifest.Manifests) != 1 {
		return "", fmt.Errorf("%s has %d images, not one; make dist makes it anew", folder, len(manifest.Manifests))
	}
	only := manifest.Manifests[0]
	index, err := top.ImageIndex(only.Digest)
	if err != nil {
		return "", err
	}
	tag, err := name.NewTag(repository+":"+only.Annotations[refName], options...)
	if err != nil {
		return "", err
	}
	if err := remote.WriteIndex(tag, index, remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithContext(ctx)); err != nil {
		return "", err
	}
	return tag.Name() + "@" + only.Digest.String(), nil
}
