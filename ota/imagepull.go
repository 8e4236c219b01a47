package ota

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/params"
)

// ImagePulls is the queue of pre-pulls. It must be safe for concurrent use.
type ImagePulls interface {
	// Request starts a pre-pull of the target's images. When it returns nil, the request survives
	// a crash. imported is whether the caller says that some of them were imported into containerd just now, which need not be so.
	Request(pod *corev1.Pod, target api.Target, imported bool) error
	// State returns the state of a pod's pre-pull, and false if the pod has none.
	State(pod types.NamespacedName) (api.ImagePull, bool)
	// States returns all pre-pulls, in the order of their requests.
	States() []api.ImagePull
	// Follow calls each with the current state and after each change, at most once every pause,
	// until the pre-pull or ctx has ended, or each returns false.
	Follow(ctx context.Context, pod types.NamespacedName, pause time.Duration, each func(api.ImagePull) bool)
	// Cancel ends the pre-pull of a pod, and reports whether there was one.
	Cancel(pod types.NamespacedName) (bool, error)
	// Conditions returns the condition PodImageReady that a pod should have, which the cloud may show later: none
	// if it is not the hub's, and one without status if there should be none.
	Conditions(pod *corev1.Pod) []corev1.PodCondition
}

// watchPause is the shortest time between two lines of a pre-pull's watch.
const watchPause = 500 * time.Millisecond

// noPulls answers if this hub pulls no images.
func noPulls(_ http.ResponseWriter, _ *http.Request, name types.NamespacedName) error {
	return failf(http.StatusNotImplemented, "no images are pulled for pod %s: this hub was started without --container-runtime-endpoint, so it cannot pull images: start it with containerd's socket", name)
}

// requestPull starts a pre-pull. It works offline: it reads only the cache.
func (s *server) requestPull(w http.ResponseWriter, r *http.Request, name types.NamespacedName) error {
	imported, err := params.Bool(r.URL.Query(), api.ImportedParam)
	if err != nil {
		return failf(http.StatusBadRequest, "%w", err)
	}
	if err = s.withPod(r.Context(), name, func(pod *corev1.Pod) error { return s.pull(pod, imported) }); err != nil {
		if line, ok := s.refusals.line("pre-pull", name, err); ok {
			s.Logger.LogAttrs(r.Context(), slog.LevelWarn, "pre-pull not started", line...)
		}
		return err
	}
	return writeLine(w, http.StatusOK, "Image pre-pull requested for pod "+name.String())
}

func (s *server) pull(pod *corev1.Pod, imported bool) error {
	if err := check(pod, checkNotDeleting, checkNeed, checkTarget, checkOwner); err != nil {
		return err
	}
	target, _, err := api.TargetOf(pod)
	if err == nil {
		err = s.ImagePulls.Request(pod, target, imported)
	}
	if err != nil {
		return fmt.Errorf("the pre-pull of pod %s was not started, since it could not be written down: %w", nameOf(pod), err)
	}
	return nil
}

// checkTarget fails if the pod does not name the images of its upgrade. It relies on checkNeed.
func checkTarget(pod *corev1.Pod) error {
	_, ok, err := api.TargetOf(pod)
	switch {
	case err != nil:
		return failf(http.StatusForbidden, "it is not known which images the upgrade of pod %s/%s takes: %w; edgehub-controller writes that annotation, see its log", pod.Namespace, pod.Name, err)
	case !ok:
		return failf(http.StatusForbidden,
			"it is not known which images the upgrade of pod %s/%s takes: it has no annotation %s, which edgehub-controller sets together with condition %s; is it another controller that set the condition?",
			pod.Namespace, pod.Name, api.TargetAnnotation, api.NeedCondition)
	}
	return nil
}

// showPull answers with the state of a pre-pull; with ?watch=true, with a line for each change
// until the pre-pull has ended.
func (s *server) showPull(w http.ResponseWriter, r *http.Request, name types.NamespacedName) error {
	watch, err := params.Bool(r.URL.Query(), api.WatchParam)
	if err != nil {
		return failf(http.StatusBadRequest, "%w", err)
	}
	watch = watch && r.Method != http.MethodHead
	state, ok := s.ImagePulls.State(name)
	switch {
	case !ok:
		return noPull(name)
	case watch:
		s.watchPull(w, r, name, state)
		return nil
	}
	return writeJSON(w, state, "  ")
}

// watchPull writes a line for each state. If the pre-pull has ended since its state was known,
// it writes only that state.
func (s *server) watchPull(w http.ResponseWriter, r *http.Request, name types.NamespacedName, known api.ImagePull) {
	out := newLines(w)
	s.ImagePulls.Follow(r.Context(), name, watchPause, func(state api.ImagePull) bool { return out.write(state) })
	if out.empty {
		out.write(known)
	}
}

func noPull(name types.NamespacedName) error {
	return failf(http.StatusNotFound, "no images are being pulled for pod %s, and none are there ahead of its upgrade: POST to this path starts it, if GET /pods shows that the pod needs an upgrade", name)
}

func (s *server) cancelPull(w http.ResponseWriter, _ *http.Request, name types.NamespacedName) error {
	was, err := s.ImagePulls.Cancel(name)
	switch {
	case err != nil:
		return fmt.Errorf("the pre-pull of pod %s goes on, since its end could not be written down: %w", name, err)
	case !was:
		return noPull(name)
	}
	return writeLine(w, http.StatusOK, "Image pre-pull cancelled for pod "+name.String())
}

// listPulls answers with all pre-pulls.
func (s *server) listPulls(w http.ResponseWriter, _ *http.Request) error {
	list := api.ImagePullList{Items: []api.ImagePull{}}
	if s.ImagePulls != nil {
		list.Items = s.ImagePulls.States()
	}
	return writeJSON(w, list, "  ")
}
