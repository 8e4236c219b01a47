package ota

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/params"
)

// Rollbacks are wishes for earlier revisions, and what there is to go back to. It must be safe for
// concurrent use.
type Rollbacks interface {
	// History returns the revisions that a pod's app has run on this node, the current one first.
	History(pod *corev1.Pod) api.History
	// Previous returns the target to which a pod would be rolled back: revision, or the one before
	// the current if it is empty. It returns false if the node has not run it.
	Previous(pod *corev1.Pod, revision string) (api.Target, bool)
	// Missing returns the images of a target that are certainly not on the node.
	Missing(target api.Target) []string
	// Request asks the cloud for an earlier revision. When it returns nil, that survives a crash.
	Request(pod *corev1.Pod, target api.Target) error
	// Withdraw ends a request, because the owner upgrades the pod.
	Withdraw(pod types.NamespacedName) error
	// State returns the last rollback of a pod that was requested.
	State(pod types.NamespacedName) (api.Upgrade, bool)
	// States returns those of all pods.
	States() []api.Upgrade
}

// rollback goes back to an earlier revision of a pod.
func (s *server) rollback(w http.ResponseWriter, r *http.Request) error {
	var want rollbackRequest
	var done accepted
	var target api.Target
	var uid types.UID
	name, err := podOf(r)
	if err == nil {
		want, err = parseRollback(r.URL.RawQuery)
	}
	if err == nil {
		err = s.withPod(r.Context(), name, func(pod *corev1.Pod) (err error) {
			uid = pod.UID
			var undone bool
			if done, undone, err = s.undoInPlace(pod, want); undone || err != nil {
				return err
			}
			pod = s.effective(pod)
			if target, err = s.previous(pod, want); err == nil {
				done, err = s.goBack(pod, target)
			}
			return err
		})
	}
	if err == nil && done.code == http.StatusAccepted {
		if err = s.awaitRollback(r.Context(), name, uid); err != nil {
			done = accepted{}
		}
	}
	code := cmp.Or(done.code, codeOf(err))
	s.rollbacks.WithLabelValues(strconv.Itoa(code)).Inc()
	if err != nil {
		if line, ok := s.refusals.line("rollback", name, err); ok {
			s.Logger.LogAttrs(r.Context(), slog.LevelWarn, "rollback not started", line...)
		}
		return err
	}
	s.Logger.Info("rollback started", "pod", name.String(), "code", code, "revision", target.Revision)
	return writeLine(w, code, done.text)
}

// rollbackRequest is what a caller of POST rollback wants.
type rollbackRequest struct {
	revision string // the previous one if it is empty
	force    bool   // in spite of a hold
}

// parseRollback reads the query of POST rollback. It fails with 400.
func parseRollback(query string) (rollbackRequest, error) {
	var r rollbackRequest
	values, err := params.Parse(query, api.RevisionParam, api.ForceParam)
	if err == nil {
		r.force, err = params.Bool(values, api.ForceParam)
	}
	if r.revision = values.Get(api.RevisionParam); err == nil && r.revision == "" && values.Has(api.RevisionParam) {
		err = fmt.Errorf("%s is empty: GET …/history shows those that there are", api.RevisionParam)
	}
	if err != nil {
		return rollbackRequest{}, failf(http.StatusBadRequest, "nothing was rolled back: %w", err)
	}
	return r, nil
}

// checkRollback fails if the admin does not let owners roll back.
func checkRollback(pod *corev1.Pod) error {
	policy, err := api.PolicyOf(pod)
	if err != nil {
		return failf(http.StatusForbidden, "it is not known whether pod %s/%s may be rolled back: %w; edgehub-controller writes that annotation, see its log", pod.Namespace, pod.Name, err)
	}
	if !policy.Rollback {
		return failf(http.StatusForbidden,
			"pod %s/%s may not be rolled back by the node's owner: the admin of its DaemonSet or StatefulSet can permit it there, with the annotation %s: %s",
			pod.Namespace, pod.Name, api.OwnerRollbackAnnotation, api.RollbackAllowed)
	}
	return nil
}

// previous returns the target of a rollback, and fails if there is none, if its images are not here, if
// the cluster cannot take the pod back to it, or if the pod may not be rolled back now.
func (s *server) previous(pod *corev1.Pod, want rollbackRequest) (target api.Target, err error) {
	if err := s.mayGoBack(pod, want); err != nil {
		return target, err
	}
	target, ok := s.Rollbacks.Previous(pod, want.revision)
	switch {
	case !ok && want.revision == "":
		return target, failf(http.StatusConflict, "there is no earlier revision of pod %s/%s to go back to: this node has run no other; GET …/history shows what it has run", pod.Namespace, pod.Name)
	case !ok:
		return target, failf(http.StatusConflict, "pod %s/%s cannot go back to revision %.63q: this node has not run it, or runs it now; GET …/history shows what it has run", pod.Namespace, pod.Name, want.revision)
	}
	if t, marked, err := api.TargetOf(pod); marked && err == nil && t.Revision == target.Revision {
		return target, failf(http.StatusConflict, "revision %s is the one that pod %s/%s is to be upgraded to: POST …/upgrade starts that", target.Revision, pod.Namespace, pod.Name)
	}
	if problem := api.NoWayBack(pod, target.Revision); problem != "" {
		return target, failf(http.StatusConflict, "pod %s/%s cannot go back to revision %s: %s", pod.Namespace, pod.Name, target.Revision, problem)
	}
	if missing := s.Rollbacks.Missing(target); len(missing) > 0 {
		return target, failf(http.StatusConflict, "pod %s/%s cannot go back to revision %s: these images are not on this node any more: %s; the admin can roll out that version again",
			pod.Namespace, pod.Name, target.Revision, strings.Join(missing, ", "))
	}
	return target, nil
}

// mayGoBack fails if a pod may not be rolled back now, whatever there is to go back to.
func (s *server) mayGoBack(pod *corev1.Pod, want rollbackRequest) error {
	err := check(pod, checkNotDeleting, checkOwner, checkRollback)
	if err == nil && !want.force {
		err = s.checkHold(pod)
	}
	return err
}

// goBack requests a rollback. It holds the pod's lock, without which no queued upgrade begins; one that
// waits is withdrawn once the rollback is accepted.
func (s *server) goBack(pod *corev1.Pod, target api.Target) (accepted, error) {
	if s.hasBegun(pod) {
		return accepted{}, failf(http.StatusConflict, "pod %s is being upgraded, and its deletion may have been sent: wait until that has ended, GET …/upgrade shows it", nameOf(pod))
	}
	if err := s.Rollbacks.Request(pod, target); err != nil {
		return accepted{}, fmt.Errorf("the rollback of pod %s was not started, since it could not be written down: %w", nameOf(pod), err)
	}
	s.withdrawQueued(pod)
	if s.Offline() != "" {
		return accepted{code: http.StatusAccepted, text: fmt.Sprintf("Rollback of pod %s queued: it starts when the cloud can be reached", nameOf(pod))}, nil
	}
	return accepted{code: http.StatusAccepted, text: fmt.Sprintf("Rollback of pod %s to revision %s requested", nameOf(pod), target.Revision)}, nil
}

// awaitRollback waits until edgehub-controller has answered the wish for a rollback, and fails if it refuses. Without an answer
// in time, and without the cloud, the wish stands.
func (s *server) awaitRollback(ctx context.Context, name types.NamespacedName, uid types.UID) error {
	for deadline := time.Now().Add(answerWithin); time.Now().Before(deadline) && s.Offline() == ""; {
		last, ok := s.Rollbacks.State(name)
		switch {
		case !ok, last.UID != string(uid), last.State == api.Done:
			return nil
		case last.State.Final():
			return failf(http.StatusConflict, "pod %s was not rolled back to revision %s: %s", name, last.Revision, last.Message)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookEvery):
		}
	}
	return nil
}

// hasBegun reports whether a queued upgrade of a pod has begun, and not ended.
func (s *server) hasBegun(pod *corev1.Pod) bool {
	if s.Queue == nil {
		return false
	}
	state, ok := s.Queue.State(nameOf(pod))
	return ok && state.UID == string(pod.UID) && state.State == api.InProgress
}

// withdrawUnanswered is called when an upgrade of a pod waits: a rollback that has not been carried out would
// restart the app once more before that. A pod that was rolled back stays so until it is upgraded.
func (s *server) withdrawUnanswered(pod *corev1.Pod) error {
	if s.Rollbacks == nil {
		return nil
	}
	if last, ok := s.Rollbacks.State(nameOf(pod)); !ok || last.State.Final() {
		return nil
	}
	if err := s.Rollbacks.Withdraw(nameOf(pod)); err != nil {
		return fmt.Errorf("the upgrade of pod %s waits, but the end of its rollback could not be written down, so that it may be rolled back before: %w; request the upgrade again once the disk can be written", nameOf(pod), err)
	}
	return nil
}

// withdrawRollback is called when a pod is being upgraded. If it fails, the wish ends with the pod.
func (s *server) withdrawRollback(pod *corev1.Pod) {
	if s.Rollbacks == nil {
		return
	}
	if err := s.Rollbacks.Withdraw(nameOf(pod)); err != nil {
		s.Logger.Warn("the rollback of a pod that is being upgraded now was not withdrawn", "pod", nameOf(pod).String(), "err", err)
	}
}

// showHistory answers with the revisions that a pod's app has run on this node.
func (s *server) showHistory(w http.ResponseWriter, r *http.Request, name types.NamespacedName) error {
	var list api.History
	err := s.withPod(r.Context(), name, func(pod *corev1.Pod) error {
		list = s.Rollbacks.History(s.effective(pod))
		if s.InPlace != nil {
			if u, ok := s.InPlace.State(name); ok && u.UID == string(pod.UID) {
				list.Upgrade = &u
			}
		}
		return checkOwner(pod)
	})
	if err != nil {
		return err
	}
	return writeJSON(w, list, "  ")
}
