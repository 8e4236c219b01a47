package autonomy

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/edgehub-io/edgehub/ota/api"
)

// originals are the annotations by the key of a taint.
var originals = map[string]string{
	corev1.TaintNodeNotReady:    api.OriginalNotReadyAnnotation,
	corev1.TaintNodeUnreachable: api.OriginalUnreachableAnnotation,
}

// An eviction that Kubernetes has scheduled is not moved when the tolerationSeconds change to others, neither earlier nor
// later: taint eviction (processPodOnNode in pkg/controller/tainteviction) only cancels it, when the pod tolerates the
// taint for ever. So while a node is away, seconds change in two steps, by way of for ever.
const (
	// cancelling is how long after the first step the second one follows. Taint eviction has to see both; it sees a
	// change within milliseconds, and a release has to be done within 5 s.
	cancelling = 2 * time.Second
	// stuck is after what time both steps are taken again, if a released pod has not been evicted.
	stuck = 15 * time.Second
)

// Step is the next change of a pod.
type Step struct {
	// Patch is a merge patch; nil if nothing is to be done.
	Patch []byte
	// After is how long after the last change of the node's pods the patch is due.
	After time.Duration
	// More is true if another step follows.
	More bool
}

// Exempt reports whether taint eviction does not delete the pod, or nothing would be won if it did not: DaemonSets' pods
// tolerate the taints, kubelet makes mirror pods again, and the others end by themselves.
func Exempt(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil ||
		pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed ||
		owner != nil && (owner.Kind == "DaemonSet" || owner.Kind == "Node")
}

// Held reports whether the tolerations of a pod are those of its node's autonomy.
func Held(pod *corev1.Pod) bool {
	for _, original := range originals {
		if _, ok := pod.Annotations[original]; ok {
			return true
		}
	}
	return false
}

// Stays reports whether a pod tolerates for as long as the setting asks for that its node is away: of the tolerations
// that match, the shortest one counts.
func Stays(pod *corev1.Pod, s Setting) bool {
	for key := range originals {
		taint, tolerated := corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute}, false
		for i := range pod.Spec.Tolerations {
			t := &pod.Spec.Tolerations[i]
			if !t.ToleratesTaint(klog.Background(), &taint, true) {
				continue
			}
			tolerated = true
			if t.TolerationSeconds != nil && (s.Forever || *t.TolerationSeconds < s.Seconds) {
				return false
			}
		}
		if !tolerated {
			return false
		}
	}
	return true
}

// Plan returns the step that brings a pod to the tolerations of a setting; away is whether its node is.
//
// Only the tolerations that Kubernetes itself added are changed, those with so many default seconds.
// Taint eviction takes the shortest one that matches, so another one beside them would change nothing.
//
// A node may forge a record: it may change annotations of its pods, by their status, and not tolerations. So
// a record restores at most the default seconds, which is all that is ever recorded. With a forged record, seconds that
// a pod brought itself are taken for those of this controller. That holds for the node's own pods only, which it could
// keep as well by being Ready.
func (f Fleet) Plan(pod *corev1.Pod, s Setting, away bool) (Step, error) {
	if Exempt(pod) {
		return Step{}, nil
	}
	var out Step
	tolerations, annotations := slices.Clone(pod.Spec.Tolerations), map[string]*string{}
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		i := only(tolerations, taint)
		if i < 0 {
			continue // the pod's own
		}
		original, t := originals[taint], &tolerations[i]
		recorded, isRecorded := pod.Annotations[original]
		var want *int64
		switch {
		case !isRecorded && (!s.On || t.TolerationSeconds == nil || *t.TolerationSeconds != f.Defaults.of(taint)):
			continue // nothing is asked for, or it is the pod's own
		case !s.On:
			want = new(before(recorded, f.Defaults.of(taint)))
		case !s.Forever:
			want = new(s.Seconds)
		}
		step, wait := next(t.TolerationSeconds, want, away)
		switch {
		case !isRecorded:
			annotations[original] = new(strconv.FormatInt(f.Defaults.of(taint), 10))
		case !s.On && sameSeconds(step, want):
			annotations[original] = nil
		}
		t.TolerationSeconds = step
		out.After, out.More = max(out.After, wait), out.More || !sameSeconds(step, want)
	}
	if len(annotations) == 0 && slices.EqualFunc(tolerations, pod.Spec.Tolerations, equal) {
		return Step{}, nil
	}
	var err error
	out.Patch, err = json.Marshal(map[string]any{
		// Of another pod, or another version, all tolerations must not be replaced by these.
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion, "annotations": annotations},
		"spec":     map[string]any{"tolerations": tolerations},
	})
	return out, err
}

// before returns the seconds of a record, which are no more than the default ones.
func before(record string, most int64) int64 {
	seconds, err := strconv.ParseInt(record, 10, 64)
	if err != nil || seconds < 1 || seconds > most {
		return most
	}
	return seconds
}

// next returns the seconds that follow those of a toleration, on the way to others, and how long to wait for that. Nil
// is for ever.
func next(now, want *int64, away bool) (*int64, time.Duration) {
	released := want != nil && *want == 0
	switch {
	case !away:
		return want, 0
	case sameSeconds(now, want) && released:
		return nil, stuck
	case sameSeconds(now, want):
		return want, 0
	case now == nil:
		return want, cancelling
	default:
		return nil, 0
	}
}

// only returns the index of the one toleration of the NoExecute taint, in the form that Kubernetes adds,
// or -1.
func only(tolerations []corev1.Toleration, taint string) int {
	found := -1
	for i := range tolerations {
		t := &tolerations[i]
		switch {
		case t.Key != taint && t.Key != "" || t.Effect != "" && t.Effect != corev1.TaintEffectNoExecute:
		case found >= 0 || t.Key == "" || t.Effect == "" || t.Operator != corev1.TolerationOpExists:
			return -1
		default:
			found = i
		}
	}
	return found
}

func equal(a, b corev1.Toleration) bool {
	same := sameSeconds(a.TolerationSeconds, b.TolerationSeconds)
	a.TolerationSeconds, b.TolerationSeconds = nil, nil
	return same && a == b
}

func sameSeconds(a, b *int64) bool { return a == b || a != nil && b != nil && *a == *b }
