package inplace

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/ota/api"
)

const (
	// margin is what kubelet and containerd may take besides what the pod asks for, on a slow board.
	margin = time.Minute
	// maxLimit bounds a probation, but for how long the pod has to be Ready: somebody waits for the app.
	maxLimit = 30 * time.Minute
	// maxUnchecked is how long the owner's checks may be impossible to run at the limit: systemd may be busy, or start anew.
	maxUnchecked = time.Minute
)

// trial is the part of a Record that decides whether the new version works.
type trial struct {
	Containers []Container `json:"containers"` // those that change
	// Limit is after how much running time of the hub the upgrade is undone, and Ran how much there was. No clock decides:
	// those of nodes jump.
	Limit time.Duration `json:"limit"`
	Ran   time.Duration `json:"ran"`
	// MinReady is how long the pod has to be Ready.
	MinReady time.Duration `json:"minReady"`
	Boot     string        `json:"boot,omitempty"` // the last boot ID; "" is unknown
	Boots    int           `json:"boots,omitempty"`

	ready    bool          // as was seen last
	readyFor time.Duration // without a break, of this process
	// unchecked is why the owner's checks could not be run when that was tried last, and uncheckedFor since when, of this process.
	unchecked    string
	uncheckedFor time.Duration
}

// Container is what is known of a container that changes. kubelet's status names containers by ID; the images that it names
// are what containerd calls them, and decide nothing.
type Container struct {
	Name string `json:"name"`
	Old  string `json:"old,omitempty"`  // the ID when the upgrade began
	Last string `json:"last,omitempty"` // the last other one; "": none was seen yet
	// Restarts is the count of Last, Ended whether Last has ended, and Crashes how often one has since the first.
	Restarts int32 `json:"restarts,omitempty"`
	Ended    bool  `json:"ended,omitempty"`
	Crashes  int   `json:"crashes,omitempty"`
	// Free is set by a boot, which ends containers and is not their crash, until there is a new one.
	Free bool `json:"free,omitempty"`
}

func newTrial(pod *corev1.Pod, t api.Target, changes []api.ImageChange, boot string) trial {
	p := trial{MinReady: max(MinReady, time.Duration(t.MinReadySeconds)*time.Second), Boot: boot}
	p.Limit = limitOf(pod, changes, p.MinReady)
	for _, c := range changes {
		one := Container{Name: c.Name}
		if s := statusOf(pod, c.Name); s != nil {
			one.Old = s.ContainerID
		}
		p.Containers = append(p.Containers, one)
	}
	return p
}

// limitOf returns how long a pod may take until it has been Ready for minReady: kubelet stops the old containers one after the
// other, each with its grace, and starts the new ones, whose probes begin anew.
func limitOf(pod *corev1.Pod, changes []api.ImageChange, minReady time.Duration) time.Duration {
	grace, slowest := 30*time.Second, time.Duration(0)
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		grace = time.Duration(*s) * time.Second
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		slowest = max(slowest, worstOf(c.StartupProbe)+worstOf(c.ReadinessProbe))
	}
	return min(maxLimit, grace*time.Duration(len(changes))+slowest+margin) + minReady
}

// worstOf returns how long a probe may fail and then succeed.
func worstOf(p *corev1.Probe) time.Duration {
	if p == nil {
		return 0
	}
	tries := max(p.FailureThreshold, 1) + max(p.SuccessThreshold, 1)
	return time.Duration(p.InitialDelaySeconds+tries*(max(p.PeriodSeconds, 1)+max(p.TimeoutSeconds, 1))) * time.Second
}

// judge returns the record after kubelet has reported a status.
func (r Record) judge(pod *corev1.Pod) Record {
	if pod.DeletionTimestamp != nil {
		return r // its containers end for that reason
	}
	before := r
	r.Containers = slices.Clone(r.Containers)
	running := true
	for i := range r.Containers {
		c, s := &r.Containers[i], statusOf(pod, r.Containers[i].Name)
		if s == nil {
			running = false
			continue
		}
		if c.Last != "" && s.ContainerID == c.Old {
			return before // from before: the cloud has an old status for some time after its return
		}
		if why := c.lacksImage(s, r.Images); why != "" {
			return r.undo(api.ReasonNoImage, why)
		}
		running = c.follow(s) && running
		if c.Crashes >= MaxCrashes {
			return r.undo(api.ReasonCrashed, fmt.Sprintf("container %s has ended %d times%s", c.Name, c.Crashes, endOf(s)))
		}
		if c.Last != "" {
			r.State = Probation
		}
	}
	crashed := !slices.EqualFunc(before.Containers, r.Containers, func(a, b Container) bool { return a.Crashes == b.Crashes && a.Last == b.Last })
	ready := api.Condition(pod, corev1.PodReady)
	r.ready = running && ready != nil && ready.Status == corev1.ConditionTrue
	if !r.ready || crashed {
		r.readyFor = 0
	}
	return r
}

// follow takes note of a status that is not from before, and reports whether a new container runs.
func (c *Container) follow(s *corev1.ContainerStatus) (running bool) {
	if s.ContainerID == "" || s.ContainerID == c.Old {
		return false
	}
	if s.ContainerID != c.Last {
		restarts := int(s.RestartCount - c.Restarts)
		switch {
		case c.Last == "": // the first
		case c.Ended || c.Free:
			c.Crashes += max(0, restarts-1) // that of the last one is counted, or was none
		default:
			c.Crashes += max(1, restarts)
		}
		c.Last, c.Restarts, c.Ended, c.Free = s.ContainerID, s.RestartCount, false, false
	}
	ended := s.State.Running == nil && (s.State.Terminated != nil || s.State.Waiting != nil && s.LastTerminationState.Terminated != nil)
	if ended && !c.Ended && !c.Free {
		c.Ended = true
		c.Crashes++
	}
	return s.State.Running != nil && !c.Free
}

// noImage are the reasons for which kubelet has no container because of its image. ImageInspectError is none: containerd did not answer, as
// while it starts.
var noImage = []string{"ErrImageNeverPull", "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "RegistryUnavailable", "SignatureValidationFailed"}

// lacksImage returns why kubelet cannot use the new image, or "". That it cannot use the old one is no reason to go back to it.
func (c *Container) lacksImage(s *corev1.ContainerStatus, changes []api.ImageChange) string {
	w := s.State.Waiting
	if w == nil || !slices.Contains(noImage, w.Reason) {
		return ""
	}
	i := slices.IndexFunc(changes, func(one api.ImageChange) bool { return one.Name == c.Name })
	if i < 0 || !strings.Contains(w.Message, `"`+changes[i].To+`"`) {
		return ""
	}
	return fmt.Sprintf("kubelet cannot use the image of container %s: %s: %s", c.Name, w.Reason, api.OneLine(w.Message, maxWords))
}

// maxWords bounds what is repeated of a message, in bytes.
const maxWords = 300

// endOf returns how a container has ended, or "".
func endOf(s *corev1.ContainerStatus) string {
	end := cmp.Or(s.State.Terminated, s.LastTerminationState.Terminated)
	if end == nil {
		return ""
	}
	return fmt.Sprintf(", at last with exit code %d", end.ExitCode)
}

// After returns the record after the hub has run for some time.
func (r Record) After(d time.Duration) Record {
	if !r.State.onProbation() {
		return r
	}
	if r.Ran += d; r.ready {
		r.readyFor += d
	}
	if r.unchecked != "" {
		r.uncheckedFor += d
	}
	switch {
	case r.Ran < r.Limit, r.Due() && r.uncheckedFor < maxUnchecked:
	case r.Due():
		return r.undo(api.ReasonCheckFailed, fmt.Sprintf("the owner's checks could not be run: %s", r.unchecked))
	case r.State == Shown:
		return r.undo(api.ReasonNotReady, fmt.Sprintf("kubelet has not started the new version within %v", r.Limit))
	default:
		return r.undo(api.ReasonNotReady, fmt.Sprintf("the pod was not Ready for %v within %v", r.MinReady, r.Limit))
	}
	return r
}

// Due reports whether the pod was Ready for long enough, so that only the owner's checks are missing. They may take longer than the
// limit: each has one of its own.
func (r Record) Due() bool { return r.State == Probation && r.readyFor >= r.MinReady }

// Checked returns the record after the owner's checks: failed is what did not pass, "" if all did, and the error is why that is not
// known. A pod that is not Ready by then is checked again once it was for long enough.
func (r Record) Checked(failed string, err error) Record {
	switch {
	case !r.State.onProbation():
		return r
	case failed != "":
		return r.undo(api.ReasonCheckFailed, failed)
	}
	if err != nil {
		r.unchecked = api.OneLine(err.Error(), maxWords)
		return r
	}
	if r.unchecked, r.uncheckedFor = "", 0; r.Due() {
		r.State = Passed
	}
	return r
}

// Booted returns the record in a boot with this ID, which may be the last one. A version that makes the machine start again and
// again is undone.
func (r Record) Booted(id string) Record {
	if id == "" || id == r.Boot || !r.State.onProbation() {
		return r
	}
	known := r.Boot != ""
	r.Boot = id
	if !known {
		return r
	}
	r.Boots++
	r.Containers = slices.Clone(r.Containers)
	for i := range r.Containers {
		r.Containers[i].Free = r.Containers[i].Last != ""
	}
	if r.Boots >= MaxBoots {
		return r.undo(api.ReasonRebooted, fmt.Sprintf("the machine has started %d times since, and the pod was not Ready for %v", r.Boots, r.MinReady))
	}
	return r
}

// runsAgain reports whether each container runs that is not of the new version. One that kubelet has replaced does not: the cloud has its
// status for some time after its return.
func (r *Record) runsAgain(pod *corev1.Pod) bool {
	return !slices.ContainsFunc(r.Containers, func(c Container) bool {
		s := statusOf(pod, c.Name)
		return s == nil || s.State.Running == nil || s.ContainerID == c.Last || s.ContainerID == c.Old && c.Last != ""
	})
}

func statusOf(pod *corev1.Pod, container string) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if s := &pod.Status.ContainerStatuses[i]; s.Name == container {
			return s
		}
	}
	return nil
}

func revisionOf(pod *corev1.Pod) string { return pod.Labels[appsv1.ControllerRevisionHashLabelKey] }
