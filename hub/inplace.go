package hub

import (
	"context"
	"errors"
	"iter"
	"log/slog"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/hub/checks"
	"github.com/edgehub-io/edgehub/ota"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/inplace"
)

// inPlace upgrades pods in place, whose images are on the node.
type inPlace struct {
	*inplace.Journal

	images placer
	// check returns why kubelet may not use an image of a pod, with this ID, without the network.
	check func(ctx context.Context, pod *corev1.Pod, image, id string) error
	// ownersChecks returns why the checks of the node's owner cannot be run.
	ownersChecks interface{ Possible(context.Context) error }
}

// placer is the part of imagepull.Puller that has images ready for containers that start without the network.
type placer interface {
	Place(ctx context.Context, images []string, check func(image, id string) error) (missing []string, err error)
	OthersChanged()
}

// inPlaceAPI returns what carries out upgrades in place.
func (u *upgrades) inPlaceAPI() inPlace {
	p := inPlace{Journal: u.inPlace, check: u.records.Check, ownersChecks: u.checks}
	if u.images.puller != nil {
		p.images = u.images.puller
	}
	return p
}

// Check implements ota.InPlace.
func (p inPlace) Check(pod *corev1.Pod, t api.Target) error {
	if err := p.Journal.Check(pod, t); err != nil || p.images != nil {
		return err
	}
	return &ota.NotInPlaceError{Why: "this hub does not know which images are on the node: it was started without --container-runtime-endpoint"}
}

// Begin implements ota.InPlace.
func (p inPlace) Begin(ctx context.Context, pod *corev1.Pod, t api.Target, first func() error) error {
	if err := p.Check(pod, t); err != nil {
		return err
	}
	if err := p.ownersChecks.Possible(ctx); err != nil { // the upgrade would only be undone
		return &ota.NotInPlaceError{Why: "the owner's checks cannot be run: " + api.OneLine(err.Error(), maxWords)}
	}
	var needed []string
	for _, c := range t.InPlace {
		needed = append(needed, c.To, c.From) // the way back needs the old one
	}
	missing, err := p.images.Place(ctx, needed, func(image, id string) error {
		if err := p.check(ctx, pod, image, id); err != nil {
			return &ota.NotInPlaceError{Why: api.OneLine(err.Error(), maxWords)}
		}
		return nil
	})
	_, refused := errors.AsType[*ota.NotInPlaceError](err)
	switch {
	case refused:
		return err
	case err != nil:
		return &ota.NotInPlaceError{Why: "it is not known whether the images are on the node: " + api.OneLine(err.Error(), maxWords)}
	case len(missing) > 0:
		return &ota.NotInPlaceError{Why: "images are not on the node", Missing: missing}
	}
	if err := first(); err != nil {
		return err
	}
	if err := p.Journal.Begin(pod, t); err != nil {
		return err
	}
	p.images.OthersChanged()
	return nil
}

// eventCheckFailed is the reason of an Event about a pod whose upgrade goes on.
const eventCheckFailed = "OwnerCheckFailed"

// runChecks runs the owner's checks for a pod that was upgraded in place. See inplace.Options.OwnersChecks.
func (u *upgrades) runChecks(ctx context.Context, pod *corev1.Pod) (failed string, err error) {
	about := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	return firstFailed(u.checks.Run(ctx, pod), u.log.With("pod", pod.Namespace+"/"+pod.Name), func(failure string) {
		u.cluster.Event(about, corev1.EventTypeWarning, eventCheckFailed, failure+"; the upgrade does not depend on it")
	})
}

// firstFailed has checks run until a required one fails, and returns that. Failures of the others are logged and reported as Events.
func firstFailed(results iter.Seq2[checks.Result, error], log *slog.Logger, report func(failure string)) (string, error) {
	for r, err := range results {
		switch {
		case err != nil:
			return "", err
		case r.Passed:
			log.Info("a check of the owner's has passed", "check", r.Check)
		case r.Required:
			return r.Failure(), nil
		default:
			log.Warn("a check of the owner's has failed, which it may", "check", r.Check, "why", r.Message)
			report(r.Failure())
		}
	}
	return "", nil
}

// maxWords bounds what is repeated of an error, in bytes.
const maxWords = 300
