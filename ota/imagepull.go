package ota

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/nodeapi"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// ImagePulls is the queue of images that are pulled ahead of an upgrade. It must be
// safe for concurrent use.
type ImagePulls interface {
	// Request has the images of pod's target pulled. When it returns nil, the request
	// survives whatever becomes of the process.
	Request(pod *corev1.Pod, target upgrade.Target) error
	// State returns how far the pre-pull of a pod is, and false if there is none.
	State(pod types.NamespacedName) (nodeapi.ImagePull, bool)
	// States returns all pre-pulls, in the order in which they were asked for.
	States() []nodeapi.ImagePull
	// Follow calls each with the state now and at each change, at most every pause,
	// until the pre-pull has ended, ctx ends, or each returns false.
	Follow(ctx context.Context, pod types.NamespacedName, pause time.Duration, each func(nodeapi.ImagePull) bool)
	// Cancel ends the pre-pull of a pod. It reports whether there was one.
	Cancel(pod types.NamespacedName) (bool, error)
}

// watchPause is the shortest time between two lines of a watch.
const watchPause = 500 * time.Millisecond

// watchTimeout is how long the reader of a watch may take for a line.
const watchTimeout = 3 * time.Second

// errNoPulls is why nothing is pulled by a hub that was told not to.
var errNoPulls = errors.New("this hub was started without --container-runtime-endpoint, so it cannot pull images: start it with containerd's socket")

// requestPull has the images of a pod's upgrade pulled. It needs no cloud: what it
// looks at is in the cache.
func (s *server) requestPull(w http.ResponseWriter, r *http.Request) error {
	name, err := podOf(r)
	if err == nil {
		err = s.pullFor(r.Context(), name)
	}
	if err != nil {
		s.log.Warn("pre-pull not started", "pod", name.String(), "code", codeOf(err), "error", oneLine(err))
		return err
	}
	return writeText(w, "Image pre-pull requested for pod "+name.String())
}

func (s *server) pullFor(caller context.Context, name types.NamespacedName) error {
	if s.pulls == nil {
		return failf(http.StatusNotImplemented, "pull images for pod %s: %w", name, errNoPulls)
	}
	ctx, cancel := context.WithTimeout(caller, cloudTimeout)
	defer cancel()
	pod, err := s.find(ctx, name)
	if err != nil {
		return s.cloudFailure(caller, err, fmt.Sprintf("look up pod %s", name))
	}
	if pod == nil {
		return s.explainMissingPull(ctx, caller, name)
	}
	if err := check(pod, checkNotDeleting, checkNeed, checkTarget, checkOwner); err != nil {
		return err
	}
	target, _, err := upgrade.TargetOf(pod)
	if err != nil {
		return err
	}
	if err := s.pulls.Request(pod, target); err != nil {
		return fmt.Errorf("the pre-pull of pod %s was not started, since it could not be written down: %w", name, err)
	}
	return nil
}

// explainMissingPull is explainMissing for a request that does not need the cloud.
func (s *server) explainMissingPull(ctx, caller context.Context, name types.NamespacedName) error {
	if offline := s.offline(); offline != "" {
		return failf(http.StatusNotFound, "this node knows of no pod %s (%s): GET /pods shows the pods of this node", name, offline)
	}
	return s.explainMissing(ctx, caller, name)
}

// checkTarget makes sure that the pod says which images its upgrade takes. It relies
// on checkNeed having passed.
func checkTarget(pod *corev1.Pod) error {
	_, ok, err := upgrade.TargetOf(pod)
	switch {
	case err != nil:
		return failf(http.StatusForbidden, "it is not known which images the upgrade of pod %s/%s takes: %w; edgehub-controller writes that annotation, see its log", pod.Namespace, pod.Name, err)
	case !ok:
		return failf(http.StatusForbidden,
			"it is not known which images the upgrade of pod %s/%s takes: it has no annotation %s, which edgehub-controller sets together with condition %s; is it another controller that set the condition?",
			pod.Namespace, pod.Name, upgrade.TargetAnnotation, upgrade.NeedCondition)
	}
	return nil
}

// showPull answers with how far a pre-pull is; with ?watch=true, with a line for
// each change, until it has ended.
func (s *server) showPull(w http.ResponseWriter, r *http.Request) error {
	name, err := podOf(r)
	if err != nil {
		return err
	}
	watch, err := watchOf(r)
	if err != nil {
		return err
	}
	watch = watch && r.Method != http.MethodHead
	if s.pulls == nil {
		return failf(http.StatusNotImplemented, "%w", errNoPulls)
	}
	state, ok := s.pulls.State(name)
	switch {
	case !ok:
		return noPull(name)
	case watch:
		s.watchPull(w, r, name, state)
		return nil
	}
	return writeIndented(w, state)
}

func watchOf(r *http.Request) (bool, error) {
	value := r.URL.Query().Get("watch")
	if value == "" {
		return false, nil
	}
	watch, err := strconv.ParseBool(value)
	if err != nil {
		return false, failf(http.StatusBadRequest, "watch=%.20q is neither true nor false", value)
	}
	return watch, nil
}

// watchPull writes a line for each state; at least one, known, if the pre-pull has
// ended since it was looked at.
func (s *server) watchPull(w http.ResponseWriter, r *http.Request, name types.NamespacedName, known nodeapi.ImagePull) {
	w.Header().Set("Content-Type", "application/json")
	out := http.NewResponseController(w)
	encoder := json.NewEncoder(w)
	lines := 0
	write := func(state nodeapi.ImagePull) bool {
		lines++
		// Without a deadline, a caller that reads no more would hold up the hub's stop.
		_ = out.SetWriteDeadline(time.Now().Add(watchTimeout))
		return encoder.Encode(state) == nil && out.Flush() == nil // else the caller is gone
	}
	s.pulls.Follow(r.Context(), name, watchPause, write)
	if lines == 0 {
		write(known)
	}
	_ = out.SetWriteDeadline(time.Time{})
}

func noPull(name types.NamespacedName) error {
	return failf(http.StatusNotFound, "no images are being pulled for pod %s, and none are there ahead of its upgrade: POST to this path starts it, if GET /pods shows that the pod needs an upgrade", name)
}

// cancelPull ends a pre-pull.
func (s *server) cancelPull(w http.ResponseWriter, r *http.Request) error {
	name, err := podOf(r)
	if err != nil {
		return err
	}
	if s.pulls == nil {
		return failf(http.StatusNotImplemented, "%w", errNoPulls)
	}
	was, err := s.pulls.Cancel(name)
	switch {
	case err != nil:
		return fmt.Errorf("the pre-pull of pod %s goes on, since its end could not be written down: %w", name, err)
	case !was:
		return noPull(name)
	}
	return writeText(w, "Image pre-pull cancelled for pod "+name.String())
}

// listPulls answers with the whole queue.
func (s *server) listPulls(w http.ResponseWriter, _ *http.Request) error {
	list := nodeapi.ImagePullList{Items: []nodeapi.ImagePull{}}
	if s.pulls != nil {
		list.Items = s.pulls.States()
	}
	return writeIndented(w, list)
}
