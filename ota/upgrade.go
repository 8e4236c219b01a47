package ota

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/gorilla/mux"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/api/placement"
	"github.com/edgehub-io/edgehub/ota/api/room"
)

// upgrade deletes a pod that needs an upgrade, so that its DaemonSet or StatefulSet replaces the pod by one of
// the new revision. The deletion is the commit point of an upgrade. Later, or without the cloud, it
// leaves that to the queue.
func (s *server) upgrade(w http.ResponseWriter, r *http.Request) error {
	var pod *corev1.Pod
	var done accepted
	name, err := podOf(r)
	if err == nil {
		pod, done, err = s.upgradePod(r, name)
	}
	code := cmp.Or(done.code, codeOf(err))
	s.upgrades.WithLabelValues(strconv.Itoa(code)).Inc()
	s.logUpgrade(r.Context(), name, pod, code, err, true)
	if err != nil {
		return err
	}
	if warning, err := utilnet.NewWarningHeader(299, "-", done.warning); err == nil && done.warning != "" {
		w.Header().Set("Warning", warning)
	}
	return writeLine(w, code, done.text)
}

// accepted is the answer to a request that was accepted.
type accepted struct {
	code    int
	text    string
	warning string // one line, "" for none, for the header that the apiserver uses as well
}

// upgradePod returns the pod that it has found, also with an error.
func (s *server) upgradePod(r *http.Request, name types.NamespacedName) (*corev1.Pod, accepted, error) {
	when, err := parseWhen(r.URL.RawQuery, time.Now())
	if err != nil {
		return nil, accepted{}, failf(http.StatusBadRequest, "pod %s was not upgraded: %w", name, err)
	}
	var done accepted
	pod, err := s.withPods(r.Context(), name, true, func(ctx context.Context, pods []corev1.Pod, pod *corev1.Pod) (err error) {
		if when.later() {
			done, err = s.schedule(pod, when)
			return err
		}
		if err = s.checkUpgrade(pod); err == nil && !when.Force {
			err = s.checkHold(pod)
		}
		if err == nil {
			done, err = s.start(ctx, r.Context(), pods, pod, when)
		}
		return err
	})
	return pod, done, err
}

// withPod calls f with the pod of this node that has this name, which comes from the cache while the cloud is away, and
// returns f's error. It holds the pod's lock meanwhile, so that no upgrade of the pod begins.
func (s *server) withPod(caller context.Context, name types.NamespacedName, f func(*corev1.Pod) error) error {
	_, err := s.withPods(caller, name, false, func(_ context.Context, _ []corev1.Pod, pod *corev1.Pod) error { return f(pod) })
	return err
}

// withPods calls f with the pods of this node and the one with this name among them, and returns that and f's
// error.
//
// It holds the pod's lock meanwhile, and the node's if the pod is to be deleted: of two requests at once, the
// second finds that the pod is being deleted, and two pods do not get the same room. The UID protects the
// pod's successor even if two hubs, or a hub and a person, delete the pod.
func (s *server) withPods(caller context.Context, name types.NamespacedName, lockNode bool, f func(ctx context.Context, pods []corev1.Pod, pod *corev1.Pod) error) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(caller, cloudTimeout)
	defer cancel()
	unlock, err := s.inFlight.lock(ctx, name)
	if err != nil {
		return nil, s.cloudFailure(caller, err, fmt.Sprintf("wait for another request to upgrade pod %s", name))
	}
	defer unlock()
	if lockNode {
		unlock, err := s.inFlight.lock(ctx, types.NamespacedName{})
		if err != nil {
			return nil, s.cloudFailure(caller, err, "wait for another upgrade on this node to begin")
		}
		defer unlock()
	}
	pods, pod, err := s.pods.find(ctx, name)
	switch {
	case err != nil:
		return nil, s.cloudFailure(caller, err, fmt.Sprintf("look up pod %s", name))
	case pod == nil:
		return nil, s.noSuchPod(name)
	}
	return pod, f(ctx, pods, pod)
}

// start starts the upgrade of a pod that has passed all checks but that for room, or has it wait for the
// cloud. It holds the locks.
func (s *server) start(ctx, caller context.Context, pods []corev1.Pod, pod *corev1.Pod, when When) (accepted, error) {
	if err := s.checkRuns(pod); err != nil {
		return accepted{}, err
	}
	if s.Offline() != "" && (s.queues() || s.mayBeInPlace(pod)) {
		return s.startOffline(ctx, pod, when)
	}
	if err := checkCloudsTarget(pod); err != nil {
		if s.queues() {
			return s.queue(pod, when)
		}
		return accepted{}, err
	}
	if missing := s.Unregistered(); missing != "" && s.queues() {
		done, err := s.queue(pod, when)
		done.text = fmt.Sprintf("Upgrade of pod %s queued: %s", nameOf(pod), missing)
		return done, err
	}
	warning, err := s.checkSuccessor(ctx, caller, pods, pod)
	switch {
	case err != nil && s.queues() && notSent(err):
		return s.queue(pod, when) // the hub did not know yet that the cloud is away
	case err != nil:
		return accepted{}, err
	}
	err = s.deletePod(ctx, pod)
	switch {
	case err != nil && s.queues() && notSent(err):
		return s.queue(pod, when)
	case err != nil:
		return accepted{}, s.deletionFailure(caller, pod, err)
	}
	s.Deleted(pod)
	s.withdrawQueued(pod)
	s.withdrawRollback(pod)
	return accepted{http.StatusOK, "Start updating pod " + nameOf(pod).String(), warning}, nil
}

// checkNode fails if Kubernetes would place no pod of the new version on this node as it is now, or that cannot be found
// out. The controller looks at placement, too, but may be away.
func (s *server) checkNode(ctx, caller context.Context, pods []corev1.Pod, pod *corev1.Pod) error {
	if err := s.checkRegistered(nameOf(pod)); err != nil {
		return err
	}
	target, ok := api.NextOf(pod)
	if !ok || len(target.Requests)+len(target.HostPorts) == 0 && target.Placement == nil {
		return nil
	}
	node, err := s.Pods.Node(ctx, s.NodeName)
	switch {
	case notSent(err):
		return err
	case err != nil:
		return s.cloudFailure(caller, err, fmt.Sprintf("look up node %s, to see whether the new version of pod %s has room there", s.NodeName, nameOf(pod)))
	}
	if target.Placement != nil {
		if obstacle := placement.New(*target.Placement).Obstacle(node); obstacle != "" {
			return wouldNotComeBack(pod, obstacle)
		}
	}
	if obstacle := room.Obstacle(node, pod, target, pods, nil); obstacle != "" {
		return wouldNotComeBack(pod, obstacle)
	}
	return nil
}

// checkRegistered fails while there is no Node for the next pod.
func (s *server) checkRegistered(pod types.NamespacedName) error {
	if missing := s.Unregistered(); missing != "" {
		return failf(http.StatusServiceUnavailable, "pod %s was not upgraded: %s", pod, missing)
	}
	return nil
}

func nameOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// noSuchPod is the answer to a request for a pod that is not on this node. Whether it runs elsewhere is not for everybody who may
// call.
func (s *server) noSuchPod(name types.NamespacedName) error {
	away := ""
	if offline := s.Offline(); offline != "" {
		away = " (" + offline + ")"
	}
	return withVerdict(Gone, failf(http.StatusNotFound, "there is no pod %s on this node, %s%s: GET /pods shows its pods, and `kubectl get pod -o wide` on which node another one is", name, s.NodeName, away))
}

// deletePod deletes the pod that was looked at, and no successor of its name.
func (s *server) deletePod(ctx context.Context, pod *corev1.Pod) error {
	return s.Pods.delete(ctx, pod.Namespace, pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
}

// deletionFailure turns an error of deletePod into a failure, and nil into nil.
func (s *server) deletionFailure(caller context.Context, pod *corev1.Pod, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		verdict := Unknown // the next attempt finds out whether the pod's UID was in conflict
		if apierrors.IsNotFound(err) {
			verdict = Gone
		}
		return withVerdict(verdict, failf(http.StatusNotFound, "pod %s/%s with UID %s was deleted by someone else just now: look for its successor with GET /pods", pod.Namespace, pod.Name, pod.UID))
	}
	failed := s.cloudFailure(caller, err, fmt.Sprintf("delete pod %s/%s with UID %s (sending the request again is safe)", pod.Namespace, pod.Name, pod.UID))
	if notSent(err) || isRefused(err) {
		return failed
	}
	return withVerdict(Unknown, failed)
}

// podOf reads the pod from the path. It fails with 404 for a name that no pod can have, without
// asking the cloud.
func podOf(r *http.Request) (types.NamespacedName, error) {
	vars := mux.Vars(r)
	namespace, errNamespace := url.PathUnescape(vars["namespace"])
	name, errName := url.PathUnescape(vars["pod"])
	if errNamespace != nil || errName != nil ||
		len(validation.ValidateNamespaceName(namespace, false)) > 0 || len(validation.NameIsDNSSubdomain(name, false)) > 0 {
		return types.NamespacedName{}, failf(http.StatusNotFound,
			"no pod can have the name %.300q in a namespace %.100q: GET /pods shows the pods of this node", name, namespace)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

// logUpgrade logs the one line for an upgrade that was asked for, unless it is one refusal too many. pod is nil if none was found.
// What the queue does by itself is not limited: no line of it is left out because of what somebody asks for.
func (s *server) logUpgrade(ctx context.Context, name types.NamespacedName, pod *corev1.Pod, code int, err error, limited bool) {
	attrs := []slog.Attr{slog.String("pod", name.String()), slog.Int("code", code)}
	if err != nil {
		attrs = append(attrs, slog.String("error", oneLine(err)))
	}
	if err != nil && limited {
		var ok bool
		if attrs, ok = s.refusals.line("upgrade", name, err); !ok {
			return
		}
	}
	if pod != nil {
		attrs = append(attrs, slog.String("uid", string(pod.UID)))
		if need := api.Condition(pod, api.NeedCondition); need != nil {
			attrs = append(attrs, slog.String("revision", api.RevisionOf(need)))
		}
	}
	switch {
	case err != nil:
		s.Logger.LogAttrs(ctx, slog.LevelWarn, "upgrade not started", attrs...)
	case code == http.StatusAccepted:
		s.Logger.LogAttrs(ctx, slog.LevelInfo, "upgrade queued", attrs...)
	default:
		s.Logger.LogAttrs(ctx, slog.LevelInfo, "upgrade started", attrs...)
	}
}

// newCounter counts requests by the status codes of this package, a dozen at most.
func newCounter(r prometheus.Registerer, name, help string) (*prometheus.CounterVec, error) {
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"code"})
	if r == nil {
		return counter, nil
	}
	if err := r.Register(counter); err != nil {
		return nil, fmt.Errorf("register metrics of the node API: %w", err)
	}
	return counter, nil
}
