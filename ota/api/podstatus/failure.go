package podstatus

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
)

// Failure is why a pod does not run.
type Failure struct {
	// Container is "" where the whole pod failed, as it does when it is evicted.
	Container string
	// Reason is kubelet's word for it: CrashLoopBackOff, ErrImagePull, Evicted.
	Reason string
	// Message is kubelet's sentence, in one line; it may be empty.
	Message string
	// Crashed reports whether the container has run: there may be logs of it.
	Crashed bool
	// Restarting reports whether the container of LastEnd has given way to another one, so
	// that its logs are those of the previous one.
	Restarting bool
	// LastEnd is how the container ended when it last ran, nil if it never has.
	LastEnd  *corev1.ContainerStateTerminated
	Restarts int32
}

// FailureOf returns nil for a pod that runs, or that is still being started.
func FailureOf(pod *corev1.Pod) *Failure {
	if pod.Status.Phase == corev1.PodFailed {
		f := &Failure{Reason: cmp.Or(pod.Status.Reason, string(pod.Status.Phase)), Message: oneLine(pod.Status.Message)}
		for _, c := range statuses(pod) {
			if t := c.State.Terminated; t != nil && t.ExitCode != 0 {
				f.Container, f.LastEnd, f.Restarts, f.Crashed = c.Name, t, c.RestartCount, true
				break
			}
		}
		return f
	}
	for _, c := range statuses(pod) {
		if waits := c.State.Waiting; waits != nil && !isStarting(waits.Reason) {
			f := &Failure{Container: c.Name, Reason: waits.Reason, Message: oneLine(waits.Message), Restarts: c.RestartCount}
			f.LastEnd = c.LastTerminationState.Terminated
			f.Crashed = waits.Reason == crashLoop
			f.Restarting = f.Crashed
			return f
		}
		if crashes(pod, &c) {
			return &Failure{Container: c.Name, Reason: crashLoop, Crashed: true, LastEnd: c.State.Terminated, Restarts: c.RestartCount}
		}
	}
	return nil
}

// Ended reports whether a pod has failed as a whole, as it does when kubelet rejects it, or it is evicted: kubelet
// never tries it again, unlike a container. Its owner makes another pod. rejected is true if no container was started.
func Ended(pod *corev1.Pod) (ended, rejected bool) {
	started := slices.ContainsFunc(statuses(pod), func(c corev1.ContainerStatus) bool { return c.ContainerID != "" || c.State.Terminated != nil })
	ended = pod.Status.Phase == corev1.PodFailed
	return ended, ended && !started
}

const crashLoop = "CrashLoopBackOff"

// crashes reports whether a container has ended again after a restart, which kubelet calls
// CrashLoopBackOff. kubelet may not set that reason before it syncs the container again,
// which it does when the back-off is over, just before the next start. Until then the
// status shows only how the container ended.
func crashes(pod *corev1.Pod, c *corev1.ContainerStatus) bool {
	t := c.State.Terminated
	return t != nil && c.RestartCount > 0 && (t.ExitCode != 0 || neverDone(pod, c.Name))
}

// neverDone reports whether a container is restarted even after exit code 0.
func neverDone(pod *corev1.Pod, container string) bool {
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.Name == container {
			if c.RestartPolicy != nil {
				return *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
			}
			return pod.Spec.RestartPolicy == corev1.RestartPolicyAlways
		}
	}
	return sidecarsOf(pod)[container]
}

// isStarting reports whether a container with this waiting reason is just starting. All
// other reasons are failures.
func isStarting(reason string) bool {
	return reason == "" || reason == "ContainerCreating" || reason == "PodInitializing"
}

// String is the failure in a sentence, without a full stop.
func (f *Failure) String() string {
	out := f.Reason
	if f.Message != "" && f.Reason != crashLoop { // its message repeats the name of the pod, and nothing else
		out += ": " + f.Message
	}
	if f.Container != "" {
		out = "container " + f.Container + ": " + out
	}
	if f.Restarts > 0 {
		out += fmt.Sprintf(", restarts: %d", f.Restarts)
	}
	if t := f.LastEnd; t != nil {
		out += fmt.Sprintf(", last exit code %d", t.ExitCode)
		if t.Signal != 0 {
			out += fmt.Sprintf(" (signal %d)", t.Signal)
		}
		out = joined(out, unlessTrivial(t.Reason), oneLine(t.Message))
	}
	return out
}

// joined returns the parts that are not empty, with commas between them.
func joined(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ", ")
}

// unlessTrivial leaves out reasons that add nothing to the exit code.
func unlessTrivial(reason string) string {
	if reason == "Error" || reason == "Completed" {
		return ""
	}
	return reason
}

// Restarts counts the restarts of all containers of the pod, including init containers.
func Restarts(pod *corev1.Pod) int32 {
	var n int32
	for _, c := range statuses(pod) {
		n += c.RestartCount
	}
	return n
}

// statuses are those of the init containers, and then those of the containers.
func statuses(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

// maxMessage is how much of a message is shown: an application may write 4 KiB on its end.
const maxMessage = 300

// oneLine makes a message safe for a terminal: containers write some messages, and a control
// character could overwrite other text.
func oneLine(message string) string {
	line := []rune(strings.Join(strings.FieldsFunc(message, func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) }), " "))
	if len(line) > maxMessage {
		return string(line[:maxMessage]) + "..."
	}
	return string(line)
}
