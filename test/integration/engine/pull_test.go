package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/edgehub-io/edgehub/imagepull/engine"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/test/cluster/images"
)

// TestPulled is there as kubelet would have pulled it, and pinned.
func TestPulled(t *testing.T) {
	each(t, func(r *rig) {
		layers := r.ballast(1, 3<<20, 1<<20, 5000)
		reference, image := r.push("app", "1", append(layers, layers[2])...)
		var told []engineapi.Progress
		fetched := int64(0)
		e := r.newEngine(func(o *engine.Options) { o.Fetched = func(n int) { fetched += int64(n) } })
		got, err := e.Pull(r.Context(), engineapi.Request{Image: reference, Progress: func(p engineapi.Progress) { told = append(told, p) }})
		r.must(err)

		digest, id := hashes(r, image)
		if got.Name != reference || got.Target.Digest.String() != digest || got.ID != id {
			r.Errorf("got %+v, want %s of the digest %s and the ID %s", got, reference, digest, id)
		}
		if served := r.blobBytes(layers...); served != r.size(layers...) {
			r.Errorf("the registry has sent %d bytes of the layers, which are %d", served, r.size(layers...))
		}
		if fetched < r.registry.Bytes() {
			r.Errorf("%d bytes were counted of %d", fetched, r.registry.Bytes())
		}
		last := told[len(told)-1]
		if last.Done != last.Total || last.Total != got.Size || got.Size <= r.size(layers...) {
			r.Errorf("progress ended with %+v; the size is said to be %d, and the layers are %d", last, got.Size, r.size(layers...))
		}
		byDigest := r.registry.Addr() + "/app@" + digest
		seen := r.shows(reference, "with tag and digest", func(i *cri.Image) bool {
			return i != nil && slices.Equal(i.RepoTags, []string{reference}) && slices.Equal(i.RepoDigests, []string{byDigest})
		})
		if seen.Id != id {
			r.Errorf("CRI has it as %s, want %s", seen.Id, id)
		}
		r.showsPinned(reference, true)
		blobs := []string{digest, id}
		for _, l := range layers {
			blobs = append(blobs, r.digest(l).String())
		}
		r.labeledWithSource(blobs...)
		r.unpacked(reference)
	})
}

func hashes(r *rig, image v1.Image) (digest, id string) {
	r.Helper()
	d, err := image.Digest()
	r.must(err)
	c, err := image.ConfigName()
	r.must(err)
	return d.String(), c.String()
}

// TestSizeOfAPull is known before the pull, and leaves nothing on the node.
func TestSizeOfAPull(t *testing.T) {
	eachAlone(t, func(r *rig) {
		layers := r.ballast(1, 3<<20, 1<<20)
		reference, _ := r.push("app", "1", append(layers, layers[1])...)
		next, _ := r.push("next", "1", append(layers, r.ballast(2, 5000)...)...)
		r.registry.Require("next", "me", secret+"me")
		counted := func(what string, missing func(context.Context) (int64, error), want int64) {
			r.Helper()
			asked := len(r.registry.Requests())
			got, err := missing(r.Context())
			r.must(err)
			if more := len(r.registry.Requests()) - asked; got != want || more > 0 {
				r.Errorf("%s: %d bytes, want %d; it took %d requests", what, got, want, more)
			}
		}
		measured := func(what, image string, want int64, credentials ...engineapi.Credential) {
			r.Helper()
			before := r.stored()
			missing, err := r.engine.Measure(r.Context(), engineapi.Request{Image: image, Credentials: credentials})
			r.must(err)
			counted(what, missing, want)
			if after := r.stored(); after > before {
				r.Errorf("%s: the node had %d bytes, and has %d now", what, before, after)
			}
		}
		measured("an image that is not there", reference, r.size(layers...))
		if sent := r.blobBytes(layers...); sent > 0 {
			r.Errorf("the registry has sent %d bytes of the layers", sent)
		}
		known, err := r.engine.Measure(r.Context(), engineapi.Request{Image: next, Credentials: []engineapi.Credential{credential("me", "secret default/me")}})
		r.must(err)
		counted("before layers of it come with another image", known, r.size(append(layers, r.ballast(2, 5000)...)...))
		r.pull(reference)
		counted("when layers of it have come with another image", known, r.size(r.ballast(2, 5000)...))
		measured("an image that is there", reference, 0)
		_, err = r.engine.Measure(r.Context(), engineapi.Request{Image: next})
		r.reason(err, engineapi.Unauthorized)
		measured("an image of which most is there", next, r.size(r.ballast(2, 5000)...), credential("me", "secret default/me"))
	})
}

// TestThereAlready fetches nothing, whoever has pulled the image.
func TestThereAlready(t *testing.T) {
	pulls := map[string]func(*rig, string){
		"pulled ahead":               func(r *rig, reference string) { r.pull(reference) },
		"pulled by CRI":              func(r *rig, reference string) { r.pullByCRI(reference) },
		"pulled ahead and let go of": func(r *rig, reference string) { r.must(r.engine.Release(r.Context(), r.pull(reference).Name)) },
	}
	for name, pull := range pulls {
		t.Run(name, func(t *testing.T) {
			each(t, func(r *rig) {
				reference, _ := r.push("app", "1", r.ballast(2, 1<<20)...)
				pull(r, reference)
				r.registry.Forget()
				r.pull(reference)
				if n := r.registry.Bytes(); n > 0 {
					r.Errorf("%d bytes were fetched of what is there", n)
				}
				r.showsPinned(reference, true)

				r.must(r.registry.Down())
				got := r.pull(reference)
				if held, err := r.engine.Retained(r.Context()); err != nil || !slices.Contains(held, got.Name) {
					r.Errorf("without its registry, it is not held: %v, %v", held, err)
				}
			})
		})
	}
}

// TestTagMoved leaves the tag to the image that a pod may run on until Tag is called,
// across restarts and without the network. What both images share is not fetched again.
func TestTagMoved(t *testing.T) {
	each(t, func(r *rig) {
		layers := r.ballast(3, 1<<20, 2000, 3000)
		reference, old := r.push("app", "latest", layers[0], layers[1])
		r.pull(reference)
		_, image := r.push("app", "latest", layers[0], layers[2])
		r.registry.Forget()
		got := r.pull(reference)
		digest, id := hashes(r, image)
		if got.Target.Digest.String() != digest || got.ID != id {
			r.Errorf("got %+v, want the digest %s", got, digest)
		}
		if n := r.blobBytes(layers[:2]...); n > 0 {
			r.Errorf("%d bytes were fetched that the node had", n)
		}
		_, oldID := hashes(r, old)
		expectOld := func(when string) {
			r.Helper()
			r.shows(reference, "the old image "+when, func(i *cri.Image) bool { return i != nil && i.Id == oldID })
			r.shows(id, "the new one without the tag "+when, func(i *cri.Image) bool { return i != nil && len(i.RepoTags) == 0 })
			r.showsPinned(oldID, false)
			r.showsPinned(id, true)
		}
		expectOld("after the pull")
		r.must(r.newEngine(nil).Keep(r.Context(), got))
		expectOld("after it was looked for")
		r.must(r.registry.Down())
		if again := r.pull(reference); again.ID != id {
			r.Errorf("without the registry it is %+v, want the one that is held", again)
		}
		expectOld("after a pull without the registry")

		for range 2 {
			r.must(r.newEngine(nil).Tag(r.Context(), got))
			r.shows(reference, "the new image", func(i *cri.Image) bool { return i != nil && i.Id == id })
			r.shows(oldID, "the old one without the tag", func(i *cri.Image) bool { return i != nil && len(i.RepoTags) == 0 })
			r.showsPinned(reference, true)
		}
		r.must(r.engine.Release(r.Context(), got.Name))
		r.showsPinned(reference, false)
		r.must(r.registry.Up())
		r.registry.Forget()
		r.unpacked(reference)
	})
}

// TestTagOfAnImageThatIsGone stays as it is.
func TestTagOfAnImageThatIsGone(t *testing.T) {
	each(t, func(r *rig) {
		layers := r.ballast(9, 1000, 2000)
		reference, old := r.push("app", "latest", layers[0])
		r.pullByCRI(reference)
		_, _ = r.push("app", "latest", layers[1])
		got := r.pull(reference)
		r.must(r.engine.Release(r.Context(), got.Name))
		r.remove(got.ID)
		r.eventually(func() error { // containerd collects what nobody refers to by itself
			err := r.engine.Tag(r.Context(), got)
			if failure, ok := errors.AsType[*engineapi.Error](err); !ok || failure.Reason != engineapi.Gone {
				return fmt.Errorf("got %w, want the reason %s", err, engineapi.Gone)
			}
			return nil
		})
		_, id := hashes(r, old)
		r.shows(reference, "the old image", func(i *cri.Image) bool { return i != nil && i.Id == id })
	})
}

// TestDigestReference needs no network if the image is there.
func TestDigestReference(t *testing.T) {
	each(t, func(r *rig) {
		reference, image := r.push("app", "1", r.ballast(4, 100<<10)...)
		digest, id := hashes(r, image)
		byDigest := r.registry.Addr() + "/app@" + digest
		for _, name := range []string{byDigest, reference + "@" + digest} {
			if got := r.pull(name); got.Name != byDigest || got.ID != id {
				r.Errorf("%s is %+v", name, got)
			}
			r.registry.Forget()
		}
		r.pull(byDigest)
		if requests := r.registry.Requests(); len(requests) > 0 {
			r.Errorf("the registry was asked: %v", requests)
		}
		r.shows(byDigest, "by its digest alone", func(i *cri.Image) bool {
			return i != nil && i.Id == id && len(i.RepoTags) == 0 && slices.Equal(i.RepoDigests, []string{byDigest})
		})
	})
}

// TestIndex has only this platform's image fetched.
func TestIndex(t *testing.T) {
	once(t, func(r *rig) {
		layers := r.ballast(5, 200<<10, 300<<10)
		mine, err := images.New(images.Platform("amd64"), layers[0])
		r.must(err)
		other, err := images.New(images.Platform("s390x"), layers[1])
		r.must(err)
		index := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex),
			mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}},
			mutate.IndexAddendum{Add: mine, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
		for _, image := range []v1.Image{mine, other} {
			digest, _ := hashes(r, image)
			r.must(r.registry.Push(r.Context(), "app", digest, image))
		}
		text, err := index.RawManifest()
		r.must(err)
		r.must(r.registry.PutManifest("app", "both", types.OCIImageIndex, text))
		got := r.pull(r.registry.Reference("app", "both"))
		if _, id := hashes(r, mine); got.ID != id {
			r.Errorf("got %+v, want the image %s", got, id)
		}
		digest, err := other.Digest()
		r.must(err)
		if n := r.blobBytes(layers[1]) + r.registry.BytesOf(digest); n > 0 {
			r.Errorf("%d bytes of another platform's image were fetched", n)
		}
		r.unpacked(got.Name)
	})
}

// TestLayersOfOtherMakes are unpacked, too: one that is not compressed, and an image
// without any.
func TestLayersOfOtherMakes(t *testing.T) {
	each(t, func(r *rig) {
		plain, err := images.PlainBallast(r.seed, 50<<10)
		r.must(err)
		reference, _ := r.push("plain", "1", plain)
		r.pull(reference)
		r.unpacked(reference)
		empty, _ := r.push("empty", "1")
		got := r.pull(empty)
		r.must(r.engine.Keep(r.Context(), got))
	})
}
