package imagepull

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// others are the images of Options.Others, by their names in containerd: none while the disk is almost full. It is safe
// for concurrent use.
type others struct {
	mu     sync.Mutex
	images map[string]other
}

// other is what is known of one of them: nothing until it was looked for.
type other struct {
	image   *engineapi.Image // that is retained; nil: none is
	missing bool             // it was not on the node when it was last looked for
}

// OthersChanged must be called when Options.Others returns something else. It does not block.
func (p *Puller) OthersChanged() { p.queue.sweep() }

// Retained reports whether an image, as pods name it, is on the node and stays there.
func (p *Puller) Retained(image string) bool {
	name := imageName(image)
	return p.queue.isReady(name) || p.others.get(name).image != nil
}

// Missing reports whether one of Options.Others was not on the node when it was last looked for. It
// does not report an image that was not looked for, such as without containerd.
func (p *Puller) Missing(image string) bool {
	name := imageName(image)
	return !p.queue.isReady(name) && p.others.get(name).missing
}

// Place has images, as pods name them, ready for containers that start without the network: complete on the node, retained, and
// named by their tags, each with what its pull has found. It returns those that are not on the node. check is called with each
// image and its ID in CRI once all are there; its error is returned as it is. Other errors say that it is not known.
//
// A tag that moves counts for containers of any pod that start from then on. So none does before check has passed for all.
func (p *Puller) Place(ctx context.Context, images []string, check func(image, id string) error) (missing []string, err error) {
	found := make([]engineapi.Image, len(images))
	each := func(do func(i int, name string) error) ([]string, error) {
		var missing []string
		for i, image := range images {
			switch err := do(i, imageName(image)); {
			case err == nil:
			case engineapi.AsError(err).Reason == engineapi.Gone:
				missing = append(missing, image)
			default:
				return nil, fmt.Errorf("image %s: %w", image, err)
			}
		}
		return missing, nil
	}
	missing, err = each(func(i int, name string) (err error) {
		found[i], err = p.complete(ctx, name)
		return err
	})
	if err != nil || len(missing) > 0 {
		return missing, err
	}
	for i, image := range images {
		if err := check(image, found[i].ID); err != nil {
			return nil, err
		}
	}
	return each(func(i int, _ string) error { return p.Engine.Tag(ctx, found[i]) })
}

// complete returns an image that is complete on the node, and retained.
func (p *Puller) complete(ctx context.Context, name string) (engineapi.Image, error) {
	if ready := p.queue.readyImage(name); ready != nil {
		return *ready, nil
	}
	if !p.queue.claimUnwanted(name, false) {
		return engineapi.Image{}, engineapi.Errorf(engineapi.Gone, "it is being pulled")
	}
	defer p.queue.unclaim(name)
	return p.keepOther(ctx, name)
}

// keepOthers retains the others that are on the node and that no job wants. When the disk is almost full it retains
// none but those that are needed: kubelet cannot remove them then, and would evict pods.
//
// A job retains its image by the digest that its pull has found, which may not be what the tag points
// to yet. So an image that a job wants is left to the job, and retained here when the job has ended.
func (p *Puller) keepOthers(ctx context.Context) error {
	var names []string
	for _, image := range p.Others() {
		names = append(names, imageName(image))
	}
	if len(names) > 0 {
		switch room, err := p.Engine.HasRoom(ctx); {
		case err != nil:
			p.others.replace(names)
			return err
		case !room:
			names = p.neededNames()
		}
	}
	p.others.replace(names) // before any of them could be released
	var errs []error
	for _, name := range names {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !p.queue.claimUnwanted(name, false) {
			continue
		}
		image, err := p.keepOther(ctx, name)
		p.queue.unclaim(name)
		switch {
		case err == nil:
			p.others.set(name, other{image: &image})
		case engineapi.AsError(err).Reason == engineapi.Gone:
			p.others.set(name, other{missing: true})
		default:
			errs = append(errs, fmt.Errorf("image %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// neededNames returns the names in containerd of Options.Needed.
func (p *Puller) neededNames() (names []string) {
	if p.Needed != nil {
		for _, image := range p.Needed() {
			names = append(names, imageName(image))
		}
	}
	return names
}

// keepOther retains what the name points to. If its records were removed, such as by the kubelet of a node whose
// containerd does not support pinning, it restores those of the image that was retained before.
func (p *Puller) keepOther(ctx context.Context, name string) (engineapi.Image, error) {
	image, err := p.Engine.Find(ctx, name)
	if before := p.others.get(name).image; before != nil && err != nil && engineapi.AsError(err).Reason == engineapi.Gone {
		image, err = *before, nil
	}
	if err == nil {
		err = p.Engine.Keep(ctx, image)
	}
	return image, err
}

// replace sets the images to retain. What is known of them stays.
func (o *others) replace(names []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.images
	o.images = make(map[string]other, len(names))
	for _, name := range names {
		o.images[name] = before[name]
	}
}

func (o *others) set(name string, known other) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.images[name] = known
}

// get returns what is known of an image, which is nothing if it is not one of the others.
func (o *others) get(name string) other {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.images[name]
}

// isWanted reports whether an image is to be retained.
func (o *others) isWanted(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ok := o.images[name]
	return ok
}

// hasRecord reports whether containerd's record of this name may be one of an image that is retained.
func (o *others) hasRecord(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, known := range o.images {
		if known.image != nil && known.image.HasRecord(name) {
			return true
		}
	}
	return false
}
