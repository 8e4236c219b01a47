package engine

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/distribution/reference"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engine/archive"
	"github.com/edgehub-io/edgehub/imagepull/engine/daemon"
	"github.com/edgehub-io/edgehub/imagepull/engine/lease"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// Wanted is an image of an archive that a pod names.
type Wanted struct {
	Image  string             // as the pod names it
	Target ocispec.Descriptor // as archive.Find returns it
	// Ahead is whether it is of a pod's next version. Its tag is left to the hub then, which sets it when the pod is deleted.
	Ahead bool
}

// Import brings images of an archive into containerd, all or none. It is for another process than the one that pulls: an image
// that is imported ahead is not retained, but recorded so that the next Pull of its name, by any process, takes it and asks no
// registry. Until the records exist, everything is under a lease of this import alone. progress is called from one goroutine,
// and must not block. The error is an *Error, or that of ctx.
func (e *Engine) Import(ctx context.Context, from *archive.Archive, wanted []Wanted, progress func(image string, p engineapi.Progress)) (_ []engineapi.Image, err error) {
	ctx, cancel := context.WithTimeoutCause(criContext(ctx), lease.ImportAtMost, engineapi.Errorf(engineapi.Other, "it was not read within %v", lease.ImportAtMost))
	defer cancel()
	n, err := e.node(ctx)
	if err != nil {
		return nil, e.failure(ctx, "", err)
	}
	leased, done, err := e.leases.ForImport(ctx)
	if err != nil {
		return nil, e.failure(ctx, "", err)
	}
	defer func() {
		if left := done(); left != nil {
			e.log.Warn("what the import has left is removed by containerd later", "err", left, "within", lease.ImportAtMost)
		}
	}()
	var all []engineapi.Image
	for _, w := range wanted {
		i := importing{Engine: e, node: n, archive: from}
		i.progress.report = func(p engineapi.Progress) { progress(w.Image, p) }
		image, err := i.bring(leased, w)
		if err != nil {
			return nil, e.failure(ctx, w.Image, err)
		}
		all = append(all, image)
	}
	return all, e.failure(ctx, "", e.recordImports(ctx, wanted, all))
}

// importing is the import of one image.
type importing struct {
	*Engine
	node     node
	archive  *archive.Archive
	progress meter
}

// bring has an image complete and unpacked, under the lease of ctx.
func (i *importing) bring(ctx context.Context, w Wanted) (engineapi.Image, error) {
	named, err := engineapi.Parse(w.Image)
	if err != nil {
		return engineapi.Image{}, err
	}
	if err := i.mayImport(ctx, named, w); err != nil {
		return engineapi.Image{}, err
	}
	p, err := i.reader.PartsOf(ctx, w.Target, func(ctx context.Context, blob ocispec.Descriptor) error {
		if err := i.copyBlob(ctx, blob); err != nil {
			return err
		}
		return i.labelChildren(ctx, blob)
	})
	if err != nil {
		return engineapi.Image{}, err
	}
	// Who saves an image on another machine saves it for that one. Unlike a registry, nobody has chosen by an index.
	if is := p.Platform; is.Architecture != "" && !platforms.Default().Match(is) {
		return engineapi.Image{}, engineapi.Errorf(engineapi.WrongPlatform, "it is for %s, and this node is %s; save it with --platform %[2]s",
			engineapi.Quote(platforms.Format(is)), platforms.Format(platforms.DefaultSpec()))
	}
	if err := i.complete(ctx, i.node, p, &i.progress, i.copyBlob); err != nil {
		return engineapi.Image{}, err
	}
	return engineapi.Image{Name: named.String(), Target: p.Target, ID: p.Config.Digest.String(), Size: p.Size()}, nil
}

// mayImport fails for the image of sandboxes, which every pod of the node runs, and for a tag that another image has. Ahead of
// an upgrade the tag stays as it is.
func (i *importing) mayImport(ctx context.Context, named reference.Named, w Wanted) error {
	record, err := i.client.ImageService().Get(ctx, named.String())
	if lease.UnlessNotFound(err) != nil {
		return err
	}
	switch {
	case i.isSandbox(ctx, named) || err == nil && lease.IsPinnedByOthers(record.Labels):
		return engineapi.Errorf(engineapi.Other, "another program than the hub has pinned it, as containerd does with the image that the sandboxes of all pods run; it is not imported")
	case err == nil && !w.Ahead && record.Target.Digest != w.Target.Digest:
		return engineapi.Errorf(engineapi.Other, "it is on the node, with digest %s and not %s, and pods run it; give the new one another tag", record.Target.Digest, w.Target.Digest)
	}
	return nil
}

// isSandbox reports whether containerd's settings have an image for sandboxes. CRI tells its settings up to 1.7, and pins the image from
// 1.7 on, once it is there.
func (i *importing) isSandbox(ctx context.Context, named reference.Named) bool {
	image := i.node.sandbox
	if image == "" {
		if process, err := daemon.At(ctx, i.opts.Address); err == nil {
			if c, err := i.files.of(ctx, process); err == nil && c.Plugins.Images != nil {
				image = c.Plugins.Images.Pinned["sandbox"]
			}
		}
	}
	full, err := engineapi.Normalize(image)
	return err == nil && full == named.String()
}

// copyBlob writes a blob to containerd, which compares it with its digest. What is on the node need not be in the archive.
func (i *importing) copyBlob(ctx context.Context, blob ocispec.Descriptor) error {
	ref := "edgehub-import-" + blob.Digest.String() // not that of pulls: of a reference there is one writer
	w, err := content.OpenWriter(ctx, i.store, content.WithRef(ref), content.WithDescriptor(blob))
	if errdefs.IsAlreadyExists(err) {
		i.progress.set(blob, blob.Size)
		return nil
	}
	if err != nil {
		return err
	}
	err = i.writeBlob(ctx, w, blob)
	_ = w.Close() // it is committed, or of no use
	if err == nil || errdefs.IsAlreadyExists(err) {
		return nil
	}
	if left := lease.UnlessNotFound(i.store.Abort(context.WithoutCancel(ctx), ref)); left != nil {
		i.log.Info("what there is of a blob goes with the lease only", "blob", blob.Digest, "err", left)
	}
	return err
}

func (i *importing) writeBlob(ctx context.Context, w content.Writer, blob ocispec.Descriptor) error {
	from, ok := i.archive.Blob(blob.Digest)
	switch {
	case !ok:
		return engineapi.Errorf(engineapi.Corrupt, "the file lacks %s of it; save it again, with all layers", blob.Digest)
	case from.Size() != blob.Size:
		return engineapi.Errorf(engineapi.Corrupt, "the file has %d bytes of %s, which has %d; it is damaged, or somebody has tampered with it", from.Size(), blob.Digest, blob.Size)
	}
	if err := w.Truncate(0); err != nil { // what a killed import has left
		return err
	}
	if err := i.copyTo(w, from, blob); err != nil {
		return err
	}
	err := w.Commit(ctx, blob.Size, blob.Digest)
	if errdefs.IsFailedPrecondition(err) {
		return engineapi.Errorf(engineapi.Corrupt, "what the file has as %s is something else; it is damaged, or somebody has tampered with it", blob.Digest)
	}
	return err
}

func (i *importing) copyTo(to io.Writer, from io.Reader, blob ocispec.Descriptor) error {
	const pieceSize = 1 << 20
	piece := make([]byte, pieceSize)
	for done := int64(0); ; {
		n, err := from.Read(piece)
		if n > 0 {
			if _, err := to.Write(piece[:n]); err != nil {
				return err
			}
			done += int64(n)
			i.progress.set(blob, done)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return engineapi.Errorf(engineapi.Corrupt, "the file cannot be read on (%w)", err)
		}
	}
}

// recordImports makes the images known, the names that pods have last. If that fails, it removes what it has made.
func (e *Engine) recordImports(ctx context.Context, wanted []Wanted, all []engineapi.Image) (err error) {
	var made []string
	defer func() {
		if err == nil {
			return
		}
		brief, cancel := briefContext(context.WithoutCancel(ctx))
		defer cancel()
		for _, name := range made {
			err = errors.Join(err, lease.UnlessNotFound(e.client.ImageService().Delete(brief, name, images.SynchronousDelete())))
		}
	}()
	for i, image := range all {
		named, err := engineapi.Parse(image.Name)
		if err != nil {
			return err
		}
		names, label := lease.RecordNames(named, image.Target.Digest, image.ID), ""
		if wanted[i].Ahead {
			names, label = names[1:2], lease.ImportLabel(image.Name)
		}
		for _, name := range names {
			created, err := e.leases.RecordImport(ctx, image, name, label)
			if created {
				made = append(made, name)
			}
			if err != nil {
				return fmt.Errorf("record %s: %w", name, err)
			}
		}
	}
	return nil
}
