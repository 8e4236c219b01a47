package ota

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

// Holds are the holds of pods. It must be safe for concurrent use.
type Holds interface {
	// Set holds a pod for some time from now, or changes its hold; the policy may make it end
	// earlier. When it returns nil, the hold survives a crash. It returns ErrHeldTooLong, with since
	// when, if the pod may not be held any longer.
	Set(pod *corev1.Pod, policy api.Policy, length time.Duration, reason string) (api.Hold, error)
	// Of returns the hold of a pod, and false if it has none or it is over.
	Of(pod *corev1.Pod) (api.Hold, bool)
	// State returns the hold of the pod that has this name now, as far as the node knows.
	State(pod types.NamespacedName) (api.Hold, bool)
	// Remove ends the hold of a pod, and reports whether there was one.
	Remove(pod types.NamespacedName) (bool, error)
}

// ErrHeldTooLong is returned by Holds.Set.
var ErrHeldTooLong = errors.New("it has been held for as long as its policy permits")

// hold keeps a pod from being upgraded for some time. It works offline: it reads only the cache.
func (s *server) hold(w http.ResponseWriter, r *http.Request, name types.NamespacedName) error {
	var state api.Hold
	err := s.withPod(r.Context(), name, func(pod *corev1.Pod) (err error) {
		state, err = s.setHold(pod, r.URL.Query())
		return err
	})
	if err != nil {
		if line, ok := s.refusals.line("hold", name, err); ok {
			s.Logger.LogAttrs(r.Context(), slog.LevelWarn, "pod not held", line...)
		}
		return err
	}
	s.Logger.LogAttrs(r.Context(), slog.LevelInfo, "pod held",
		slog.String("pod", name.String()), slog.Time("until", state.Until), slog.String("reason", state.Reason))
	return writeLine(w, http.StatusOK, fmt.Sprintf("Hold of pod %s until %s", name, state.Until.UTC().Format(time.RFC3339)))
}

func (s *server) setHold(pod *corev1.Pod, query url.Values) (api.Hold, error) {
	if err := check(pod, checkNotDeleting, checkOwner); err != nil {
		return api.Hold{}, err
	}
	name := nameOf(pod)
	policy, err := api.PolicyOf(pod)
	switch {
	case err != nil:
		return api.Hold{}, failf(http.StatusForbidden, "it is not known whether pod %s may be held: %w; edgehub-controller writes that annotation, see its log", name, err)
	case policy.MaxHold == 0:
		return api.Hold{}, failf(http.StatusForbidden, "pod %s may not be held: annotation %s of its DaemonSet or StatefulSet forbids it", name, api.MaxHoldAnnotation)
	}
	length, reason, err := holdParams(query, policy.MaxHold)
	if err != nil {
		return api.Hold{}, err
	}
	state, err := s.Holds.Set(pod, policy, length, reason)
	switch {
	case errors.Is(err, ErrHeldTooLong):
		return api.Hold{}, failf(http.StatusForbidden, "pod %s may not be held any longer: %w; it can be held again %v after its last hold, or when it was upgraded",
			name, err, api.HoldPause)
	case err != nil:
		return api.Hold{}, fmt.Errorf("pod %s is not held, since that could not be written down: %w", name, err)
	}
	return state, nil
}

// holdParams reads the query of POST hold.
func holdParams(query url.Values, longest time.Duration) (length time.Duration, reason string, _ error) {
	value, reason := query.Get(api.ForParam), query.Get(api.ReasonParam)
	length, err := time.ParseDuration(value)
	if err != nil || length < time.Second || length > longest {
		return 0, "", failf(http.StatusBadRequest, "%s=%.50q is not how long this pod can be held: write a duration such as 2h or 30m, from 1s to %v", api.ForParam, value, longest)
	}
	if len(reason) > api.MaxHoldReason || strings.ContainsFunc(reason, unprintable) {
		return 0, "", failf(http.StatusBadRequest, "%s is not one line of printable text of at most %d bytes", api.ReasonParam, api.MaxHoldReason)
	}
	return length, reason, nil
}

// unprintable also reports what no UTF-8 decodes to.
func unprintable(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }

func (s *server) showHold(w http.ResponseWriter, _ *http.Request, name types.NamespacedName) error {
	state, ok := s.Holds.State(name)
	if !ok {
		return notHeld(name)
	}
	return writeJSON(w, state, "  ")
}

func (s *server) removeHold(w http.ResponseWriter, r *http.Request, name types.NamespacedName) error {
	was, err := s.Holds.Remove(name)
	switch {
	case err != nil:
		return fmt.Errorf("the hold of pod %s goes on, since its end could not be written down: %w", name, err)
	case !was:
		return notHeld(name)
	}
	s.Logger.LogAttrs(r.Context(), slog.LevelInfo, "hold removed", slog.String("pod", name.String()))
	return writeLine(w, http.StatusOK, "Hold of pod "+name.String()+" removed")
}

func notHeld(name types.NamespacedName) error {
	return failf(http.StatusNotFound, "pod %s is not held: POST to this path with for=2h holds it for two hours", name)
}

// checkHold fails while a pod is on hold.
func (s *server) checkHold(pod *corev1.Pod) error {
	if s.Holds == nil {
		return nil
	}
	hold, ok := s.Holds.Of(pod)
	if !ok {
		return nil
	}
	reason := ""
	if hold.Reason != "" {
		reason = fmt.Sprintf(" (%s)", hold.Reason)
	}
	return failf(http.StatusConflict, "pod %s is on hold until %s%s: wait, end the hold with DELETE …/hold, or go on in spite of it with force=true",
		nameOf(pod), hold.Until.UTC().Format(time.RFC3339), reason)
}
