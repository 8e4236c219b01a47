package retention

import (
	"context"
	"errors"
	"fmt"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// presence is what is known of an image of Others.
type presence int

const (
	unknown  presence = iota // it was not looked for
	retained                 // it is on the node, and stays there
	missing                  // it was not on the node when it was last looked for
)

// other is what is known of an image of Others.
type other struct {
	presence
	image *engineapi.Image // that was retained last, or nil
}

// keepOthers retains the images of Others that are on the node and that no job wants. When the disk is
// almost full it retains none: kubelet cannot remove them then, and would evict pods.
//
// A job retains its image by the digest that its pull has found, which may not be what the tag points
// to yet. So an image that a job wants is left to the job, and retained here when the job has ended.
func (r *Retainer) keepOthers(ctx context.Context) error {
	others := r.Others()
	if len(others) > 0 {
		switch room, err := r.Engine.HasRoom(ctx); {
		case err != nil:
			r.setOthers(others)
			return err
		case !room:
			others = nil
		}
	}
	r.setOthers(others) // before any of them could be released
	if !r.Complete() {
		return nil // a job that is not known yet may want one
	}
	var errs []error
	for _, name := range others {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !r.Queue.Claim(name) {
			continue
		}
		image, err := r.keep(ctx, name)
		r.Queue.Unclaim(name)
		switch {
		case err == nil:
			r.setOther(name, other{retained, &image})
		case engineapi.AsError(err).Reason == engineapi.Gone:
			r.setOther(name, other{presence: missing})
		default:
			errs = append(errs, fmt.Errorf("image %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// keep retains what the name points to. If its records were removed, such as by the kubelet of a node whose
// containerd does not support pinning, it restores those of the image that was retained before.
func (r *Retainer) keep(ctx context.Context, name string) (engineapi.Image, error) {
	image, err := r.Engine.Find(ctx, name)
	if before := r.other(name).image; before != nil && err != nil && engineapi.AsError(err).Reason == engineapi.Gone {
		image, err = *before, nil
	}
	if err == nil {
		err = r.Engine.Keep(ctx, image)
	}
	return image, err
}

// removed is called when another program has removed containerd's record of this name.
func (r *Retainer) removed(name string) {
	r.Queue.Removed(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.others {
		if o.image != nil && o.image.HasRecord(name) {
			r.OthersChanged()
			return
		}
	}
}

// setOthers sets the images to retain. What is known of them stays.
func (r *Retainer) setOthers(names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.others
	r.others = make(map[string]other, len(names))
	for _, name := range names {
		r.others[name] = before[name]
	}
}

func (r *Retainer) setOther(name string, o other) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.others[name] = o
}

// other returns what is known of an image, which is nothing if it is not one of Others.
func (r *Retainer) other(name string) other {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.others[name]
}

func (r *Retainer) isOther(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.others[name]
	return ok
}

// Retained reports whether an image is on the node and stays there: one of Others that was found when
// it was last looked for, or one that a job has pulled.
func (r *Retainer) Retained(name string) bool {
	return r.Queue.Ready(name) != nil || r.other(name).presence == retained
}

// Missing reports whether one of Others was not on the node when it was last looked for.
func (r *Retainer) Missing(name string) bool {
	return !r.Retained(name) && r.other(name).presence == missing
}
