package engine

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/edgehub-io/edgehub/imagepull/engine"
	"github.com/edgehub-io/edgehub/imagepull/engine/archive"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/cluster/images"
	"github.com/edgehub-io/edgehub/test/internal/pulltest"
	"github.com/edgehub-io/edgehub/test/internal/smalldisk"
)

// importFile imports one image of a file.
func (r *rig) importFile(ctx context.Context, path, image string, ahead bool) (engineapi.Image, error) {
	r.Helper()
	return r.importAs(ctx, path, image, image, ahead)
}

// importAs imports one image of a file under another name than that by which it is found there.
func (r *rig) importAs(ctx context.Context, path, by, image string, ahead bool) (engineapi.Image, error) {
	r.Helper()
	file, err := os.Open(path)
	r.must(err)
	defer func() { _ = file.Close() }()
	a, err := archive.Open(file)
	if err != nil {
		return engineapi.Image{}, err
	}
	target, ok, err := a.Find(by)
	if err != nil {
		return engineapi.Image{}, err
	}
	if !ok {
		names, _ := a.Names()
		r.Fatalf("%s is not found in %v", by, names)
	}
	last := engineapi.Progress{Total: -1}
	all, err := r.newEngine(nil).Import(ctx, a, []engine.Wanted{{Image: image, Target: target, Ahead: ahead}}, func(_ string, p engineapi.Progress) { last = p })
	if err != nil {
		return engineapi.Image{}, err
	}
	if last.Done != last.Total || last.Total != all[0].Size {
		r.Errorf("progress ended with %+v of an image with %d bytes", last, all[0].Size)
	}
	return all[0], nil
}

// state is all that containerd has, and what holds it.
func (r *rig) state() string {
	r.Helper()
	var all []string
	for _, what := range [][]string{{"images", "ls", "-q"}, {"content", "ls", "-q"}, {"content", "active"}, {"leases", "ls", "-q"}, {"snapshots", "ls"}} {
		lines := strings.Split(r.ctr(what...), "\n")
		slices.Sort(lines)
		all = append(all, strings.Join(what, " ")+": "+strings.Join(lines, "\n"))
	}
	return strings.Join(all, "\n")
}

func (r *rig) imported(names ...string) []string {
	r.Helper()
	here, err := r.engine.Imported(r.Context(), names)
	r.must(err)
	return here
}

// TestImported is taken by the next pull, without a registry, and is retained as if it had been pulled: also where docker
// has not saved it as the registry has it.
func TestImported(t *testing.T) {
	formats := map[string]func(*rig, string, v1.Image) string{
		"OCI layout": func(r *rig, reference string, image v1.Image) string {
			return pulltest.Tar(r.T, pulltest.Layout(r.T, image, reference))
		},
		"docker save": func(r *rig, reference string, image v1.Image) string { return pulltest.Saved(r.T, image, reference) },
	}
	for name, write := range formats {
		t.Run(name, func(t *testing.T) {
			each(t, func(r *rig) {
				plain, err := images.PlainBallast(r.seed, 1<<20) // as docker saves all layers
				r.must(err)
				layers := append(r.ballast(1, 3<<20, 1<<20), plain)
				image, err := images.New(images.Platform("amd64"), append(layers, layers[1])...)
				r.must(err)
				reference := r.registry.Reference("app", "2")
				r.must(r.registry.Down())
				path := write(r, reference, image)
				for range 2 { // the second time, all of it is there
					_, err := r.importFile(r.Context(), path, reference, true)
					r.must(err)
					if retained, err := r.engine.Retained(r.Context()); err != nil || slices.Contains(retained, reference) {
						r.Errorf("it is retained before the hub knows of it: %v, %v", retained, err)
					}
					if i := r.seen(reference); i != nil {
						r.Errorf("its tag is set before the hub knows of it: %v", i)
					}
					if here := r.imported(reference, "none.invalid/app:2"); !slices.Equal(here, []string{reference}) {
						r.Errorf("the next pull takes what was imported for %v", here)
					}
				}
				got := r.pull(reference)
				if here := r.imported(reference); len(here) > 0 {
					r.Errorf("after a pull, the next one takes what was imported for %v", here)
				}
				if _, id := hashes(r, image); got.ID != id {
					r.Errorf("got %+v, want the ID %s", got, id)
				}
				r.showsPinned(reference, true)
				r.held(reference, true)
				// Once the registry answers, kubelet and another pull fetch no layer, even where docker save has not
				// kept the registry's manifest.
				r.must(r.registry.Up())
				r.must(r.registry.Push(r.Context(), "app", "2", image))
				r.registry.Forget()
				if again := r.pull(reference); again.ID != got.ID {
					r.Errorf("another pull got %+v", again)
				}
				if n := r.blobBytes(layers...); n > 0 {
					r.Errorf("%d bytes of layers were fetched that the node had", n)
				}
				if name == "OCI layout" {
					r.unpacked(reference)
				}
			})
		})
	}
}

// TestImportedBesideAnother leaves the tag to what runs, until the hub moves it.
func TestImportedBesideAnother(t *testing.T) {
	each(t, func(r *rig) {
		layers := r.ballast(1, 1<<20, 2000)
		reference, old := r.push("app", "latest", layers[0])
		r.pullByCRI(reference)
		image, err := images.New(images.Platform("amd64"), layers[1])
		r.must(err)
		path := pulltest.Tar(r.T, pulltest.Layout(r.T, image, reference))
		_, err = r.importFile(r.Context(), path, reference, false)
		r.says(r.reason(err, engineapi.Other), "give the new one another tag")
		_, err = r.importFile(r.Context(), path, reference, true)
		r.must(err)
		got := r.pull(reference) // although the registry has the old one
		_, oldID := hashes(r, old)
		if _, id := hashes(r, image); got.ID != id {
			r.Errorf("got %+v, want the ID %s", got, id)
		}
		r.shows(reference, "the old image", func(i *cri.Image) bool { return i != nil && i.Id == oldID })
		r.must(r.engine.Tag(r.Context(), got))
		r.shows(reference, "the new image", func(i *cri.Image) bool { return i != nil && i.Id == got.ID })
		if again := r.pull(reference); again.ID != oldID {
			r.Errorf("an import counts once, and then the registry does: got %+v", again)
		}
	})
}

// TestImportedForAPodThatWaits is there at once, by all its names.
func TestImportedForAPodThatWaits(t *testing.T) {
	each(t, func(r *rig) {
		image, err := images.New(images.Platform("amd64"), r.ballast(1, 10<<10)...)
		r.must(err)
		digest, id := hashes(r, image)
		reference := r.registry.Reference("app", "1")
		byDigest := r.registry.Addr() + "/app@" + digest
		r.must(r.registry.Down())
		path := pulltest.Tar(r.T, pulltest.Layout(r.T, image, reference))
		_, err = r.importFile(r.Context(), path, byDigest, false)
		r.must(err)
		r.shows(byDigest, "by its digest", func(i *cri.Image) bool { return i != nil && i.Id == id && len(i.RepoTags) == 0 })
		_, err = r.importFile(r.Context(), path, reference, false)
		r.must(err)
		r.shows(reference, "by its tag", func(i *cri.Image) bool { return i != nil && i.Id == id && len(i.RepoTags) == 1 })
	})
}

// TestImportedWhereItIs is docker's, whose manifest is not the registry's, of an image that the node has from there.
func TestImportedWhereItIs(t *testing.T) {
	each(t, func(r *rig) {
		reference, image := r.push("app", "1", r.ballast(1, 10<<10)...)
		r.pullByCRI(reference)
		_, id := hashes(r, image)
		for _, other := range []string{reference, r.registry.Reference("app", "other")} {
			got, err := r.importFile(r.Context(), pulltest.Saved(r.T, image, other), other, false)
			r.must(err)
			if got.ID != id {
				r.Errorf("got %+v, want the ID %s", got, id)
			}
			r.shows(other, "by its tag", func(i *cri.Image) bool { return i != nil && i.Id == id })
		}
		r.shows(reference, "as before", func(i *cri.Image) bool { return i != nil && i.Id == id })
	})
}

// TestRefusedFilesLeaveNothing in containerd: neither an image, nor content, nor a lease.
func TestRefusedFilesLeaveNothing(t *testing.T) {
	const sandbox = "none.example.com/pause:1" // as package cluster sets it
	change := func(files []pulltest.File, i int, to func([]byte) []byte) []pulltest.File {
		files[i].Text = to(files[i].Text)
		return files
	}
	flip := func(text []byte) []byte {
		text = slices.Clone(text)
		text[len(text)/2] ^= 1
		return text
	}
	same := func(files []pulltest.File) []pulltest.File { return files }
	tests := map[string]struct {
		files    func([]pulltest.File) []pulltest.File
		platform string
		image    string // "": of the test's registry
		reason   engineapi.Reason
		says     string
	}{
		"a byte of the last layer is another":    {func(f []pulltest.File) []pulltest.File { return change(f, len(f)-1, flip) }, "amd64", "", engineapi.Corrupt, "tampered"},
		"a byte of the configuration is another": {func(f []pulltest.File) []pulltest.File { return change(f, 3, flip) }, "amd64", "", engineapi.Corrupt, "tampered"},
		"the last layer is shorter": {
			func(f []pulltest.File) []pulltest.File {
				return change(f, len(f)-1, func(t []byte) []byte { return t[1:] })
			}, "amd64", "", engineapi.Corrupt, "damaged",
		},
		"the last layer is missing":            {func(f []pulltest.File) []pulltest.File { return f[:len(f)-1] }, "amd64", "", engineapi.Corrupt, "lacks"},
		"it is for another platform":           {same, "s390x", "", engineapi.WrongPlatform, "s390x"},
		"it has the name of the sandbox image": {same, "amd64", sandbox, engineapi.Other, "sandboxes"},
	}
	eachAlone(t, func(r *rig) {
		another, _ := r.push("another", "1", r.ballast(2, 1000)...)
		r.pullByCRI(another)
		r.ctr("images", "tag", another, sandbox)
		if r.knowsPins() {
			r.ctr("images", "label", sandbox, "io.cri-containerd.pinned=pinned")
		}
		before := r.state()
		refuse := func(name string, image v1.Image, reference string, change func([]pulltest.File) []pulltest.File, reason engineapi.Reason, says string) {
			digest, _ := hashes(r, image)
			named := pulltest.Tar(r.T, change(pulltest.Layout(r.T, image, reference)))
			bundled := pulltest.Tar(r.T, change(pulltest.Layout(r.T, image, "harmless/app:1"))) // what a bundle names, it does by digest
			for _, as := range []struct {
				path, by string
				ahead    bool
			}{{named, reference, true}, {named, reference, false}, {bundled, "@" + digest, true}} {
				_, err := r.importAs(r.Context(), as.path, as.by, reference, as.ahead)
				r.says(r.reason(err, reason), says)
				if after := r.state(); after != before {
					r.Errorf("%s, by %s: before it was\n%s\nand after it\n%s", name, as.by, before, after)
				}
			}
		}
		layers := r.ballast(1, 1<<20, 5<<20)
		for name, tt := range tests {
			image, err := images.New(images.Platform(tt.platform), layers...)
			r.must(err)
			reference := cmp.Or(tt.image, r.registry.Reference("app", "2"))
			refuse(name, image, reference, tt.files, tt.reason, tt.says)
		}
		image, err := images.New(images.Platform("amd64"), layers...)
		r.must(err)
		config, err := image.ConfigFile()
		r.must(err)
		slices.Reverse(config.RootFS.DiffIDs)
		image, err = mutate.ConfigFile(image, config)
		r.must(err)
		refuse("layers that are not what the configuration says", image, r.registry.Reference("app", "2"), same, engineapi.Corrupt, "save the image again")
	})
}

// TestAnImportThatIsInterrupted leaves nothing, and while it runs, all is under a lease that ends by itself if its program is
// killed.
func TestAnImportThatIsInterrupted(t *testing.T) {
	eachAlone(t, func(r *rig) {
		image, err := images.New(images.Platform("amd64"), r.ballast(1, 5<<20)...)
		r.must(err)
		reference := r.registry.Reference("app", "2")
		path := pulltest.Tar(r.T, pulltest.Layout(r.T, image, reference))
		before := r.state()
		file, err := os.Open(path)
		r.must(err)
		defer func() { _ = file.Close() }()
		a, err := archive.Open(file)
		r.must(err)
		target, _, err := a.Find(reference)
		r.must(err)
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		_, err = r.engine.Import(ctx, a, []engine.Wanted{{Image: reference, Target: target, Ahead: true}}, func(string, engineapi.Progress) {
			if held := r.ctr("leases", "ls"); strings.Count(held, "containerd.io/gc.expire=") != 1 {
				r.Errorf("not under one lease that ends:\n%s", held)
			}
			cancel()
		})
		if !errors.Is(err, context.Canceled) {
			r.Errorf("it ended with %v", err)
		}
		if after := r.state(); after != before {
			r.Errorf("before it was\n%s\nand after it\n%s", before, after)
		}
		_, err = r.importFile(r.Context(), path, reference, true)
		r.must(err)
	})
}

// TestAnImportWithoutRoom leaves the disk as it was: it is refused before a layer is written, or ended when it is unpacked.
func TestAnImportWithoutRoom(t *testing.T) {
	cluster.NeedRoot(t)
	bomb, err := pulltest.Zeros(30_000, 4<<10)
	if err != nil {
		t.Fatal(err)
	}
	for version, d := range daemons {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			disk := smalldisk.MountWith(t, "size=96m")
			r := newRig(t, version, pulltest.StartContainerd(t, cluster.ContainerdOptions{Version: d.version, Dir: disk, Snapshotter: "native"}))
			for says, layer := range map[string]v1.Layer{"it needs at least": r.ballast(1, 60<<20)[0], "leaves too little room": bomb} {
				image, err := images.New(images.Platform("amd64"), layer)
				r.must(err)
				reference := r.registry.Reference("app", "2")
				before := r.state()
				_, err = r.importFile(r.Context(), pulltest.Tar(r.T, pulltest.Layout(r.T, image, reference)), reference, true)
				r.says(r.reason(err, engineapi.NoSpace), says)
				if after := r.state(); after != before {
					r.Errorf("before it was\n%s\nand after it\n%s", before, after)
				}
			}
		})
	}
}

// TestImportedDuringAPull is what the pull goes on with, or begins again with.
func TestImportedDuringAPull(t *testing.T) {
	each(t, func(r *rig) {
		layers := r.ballast(1, 3<<20, 2<<20)
		reference, image := r.push("app", "2", layers...)
		r.cutShort(reference, layers[0], 1<<20)
		_, err := r.importFile(r.Context(), pulltest.Tar(r.T, pulltest.Layout(r.T, image, reference)), reference, true)
		r.must(err)
		r.must(r.registry.Down())
		r.pull(reference)
		r.must(r.registry.Up())
		r.registry.Forget()
		r.unpacked(reference)
		r.held(reference, true)
	})
}
