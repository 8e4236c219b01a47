package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/distribution/reference"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engine/archive"
	"github.com/edgehub-io/edgehub/imagepull/engine/imagecontent"
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
	const atMost = lease.ImportAtMost - time.Minute // the records are made before the lease ends
	ctx, cancel := context.WithTimeoutCause(criContext(ctx), atMost, engineapi.Errorf(engineapi.Other, "it was not read within %v", atMost))
	defer cancel()
	defer func() {
		if cause, tooLong := errors.AsType[*engineapi.Error](context.Cause(ctx)); tooLong && err != nil {
			err = cause
		}
	}()
	n, err := e.node(ctx)
	if err != nil {
		return nil, e.failure(ctx, "", err)
	}
	leased, done, err := e.leases.ForImport(ctx)
	if err != nil {
		return nil, e.failure(ctx, "", err)
	}
	defer func() {
		after := context.WithoutCancel(ctx)
		brief, cancel := briefContext(after)
		defer cancel()
		_ = done(brief) // otherwise it ends by itself
		e.leases.Collect(after)
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
	if p, err = i.admit(ctx, named, w, p); err != nil {
		return engineapi.Image{}, err
	}
	if err := i.complete(ctx, i.node, p, &i.progress, i.copyBlob); err != nil {
		return engineapi.Image{}, err
	}
	return engineapi.Image{Name: named.String(), Target: p.Target, ID: p.Config.Digest.String(), Size: p.Size()}, nil
}

// admit fails for the image of sandboxes, which every pod of the node runs, and for a tag that another image has. Ahead of
// an upgrade the tag stays as it is. If the tag has this image by another manifest, as a registry has another one than docker
// save, admit returns that.
func (i *importing) admit(ctx context.Context, named reference.Named, w Wanted, p imagecontent.Content) (imagecontent.Content, error) {
	record, err := i.client.ImageService().Get(ctx, named.String())
	absent := errdefs.IsNotFound(err)
	if err != nil && !absent {
		return p, err
	}
	sandbox, _ := engineapi.Normalize(i.node.sandbox) // containerd 1.6 does not pin it
	switch {
	case sandbox == named.String() || lease.IsPinnedByOthers(record.Labels):
		return p, engineapi.Errorf(engineapi.Other, "another program than the hub has pinned it, as containerd does with the image that the sandboxes of all pods run; it is not imported")
	case absent || w.Ahead || record.Target.Digest == p.Target.Digest:
		return p, nil
	}
	there, err := i.reader.PartsOf(ctx, record.Target, i.look)
	if err == nil && there.Config.Digest == p.Config.Digest {
		return there, nil
	}
	return p, engineapi.Errorf(engineapi.Other, "it is on the node, with digest %s and not %s, and pods run it; give the new one another tag", record.Target.Digest, p.Target.Digest)
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
	defer func() { _ = w.Close() }() // it is committed, or goes with the lease
	return i.writeBlob(ctx, w, blob)
}

func (i *importing) writeBlob(ctx context.Context, w content.Writer, blob ocispec.Descriptor) error {
	part, ok := i.archive.Blob(blob.Digest)
	switch {
	case !ok:
		return engineapi.Errorf(engineapi.Corrupt, "the file lacks %s of it; save it again, with all layers", blob.Digest)
	case part.Size() != blob.Size:
		return engineapi.Errorf(engineapi.Corrupt, "the file has %d bytes of %s, which has %d; it is damaged, or somebody has tampered with it", part.Size(), blob.Digest, blob.Size)
	}
	if err := w.Truncate(0); err != nil { // what a killed import has left
		return err
	}
	from := &source{Reader: part, read: func(sum int64) { i.progress.set(blob, sum) }}
	err := content.Copy(ctx, w, from, blob.Size, blob.Digest)
	switch {
	case from.err != nil || errors.Is(err, io.ErrUnexpectedEOF):
		return engineapi.Errorf(engineapi.Corrupt, "the file cannot be read on (%w)", err)
	case errdefs.IsFailedPrecondition(err):
		return engineapi.Errorf(engineapi.Corrupt, "what the file has as %s is something else; it is damaged, or somebody has tampered with it", blob.Digest)
	}
	return err
}

// source says how much was read of a file, and keeps its error apart from those of containerd.
type source struct {
	io.Reader
	read func(sum int64)
	sum  int64
	err  error
}

func (s *source) Read(into []byte) (int, error) {
	n, err := s.Reader.Read(into)
	s.sum += int64(n)
	s.read(s.sum)
	if !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// recordImports makes the images known, the names that pods have last. If that fails, it removes what it has made. The end of
// ctx does not stop it halfway.
func (e *Engine) recordImports(ctx context.Context, wanted []Wanted, all []engineapi.Image) (err error) {
	brief, cancel := briefContext(context.WithoutCancel(ctx))
	defer cancel()
	var made []string
	defer func() {
		for _, name := range made {
			if err != nil {
				err = errors.Join(err, lease.UnlessNotFound(e.client.ImageService().Delete(brief, name)))
			}
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
			created, err := e.leases.RecordImport(brief, image, name, label)
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
