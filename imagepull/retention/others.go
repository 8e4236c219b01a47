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
		err := r.keep(ctx, name)
		r.Queue.Unclaim(name)
		switch {
		case err == nil:
			r.setOther(name, retained)
		case engineapi.AsError(err).Reason == engineapi.Gone:
			r.setOther(name, missing)
		default:
			errs = append(errs, fmt.Errorf("image %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func (r *Retainer) keep(ctx context.Context, name string) error {
	image, err := r.Engine.Find(ctx, name)
	if err != nil {
		return err
	}
	return r.Engine.Keep(ctx, image)
}

// setOthers sets the images to retain. What is known of them stays.
func (r *Retainer) setOthers(names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.others
	r.others = make(map[string]presence, len(names))
	for _, name := range names {
		r.others[name] = before[name]
	}
}

func (r *Retainer) setOther(name string, p presence) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.others[name] = p
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
	if r.Queue.Ready(name) != nil {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.others[name] == retained
}

// Missing reports whether one of Others was not on the node when it was last looked for.
func (r *Retainer) Missing(name string) bool {
	if r.Retained(name) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.others[name] == missing
}
