package inplace

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/podreport"
)

// Idle reports whether kubelet reads all pods as the cloud has them.
func (j *Journal) Idle() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.records) == 0
}

// Knows reports whether a pod has a record.
func (j *Journal) Knows(pod types.UID) bool {
	_, ok := j.get(pod)
	return ok
}

// Images returns which images kubelet is to read in place of those of an object of the cloud, by container, nil for none. have
// are those of the object, and version is its resourceVersion.
func (j *Journal) Images(pod types.UID, version string, have map[string]string) map[string]string {
	r, ok := j.get(pod)
	if !ok {
		return nil
	}
	return r.Show(version, have)
}

// Changes returns the pods of which kubelet may have read something else since a generation, 0 for all, and the present
// generation. changed is closed when there are others. What was undone stays among all: kubelet may start the new image once more before
// it has read that, and its status does not show it.
func (j *Journal) Changes(since uint64) (pods map[types.UID]types.NamespacedName, generation uint64, changed <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	pods = map[types.UID]types.NamespacedName{}
	for uid, r := range j.records {
		if r.State != Confirmed && j.shown[uid] > since {
			pods[uid] = r.Pod
		}
	}
	return pods, j.generation, j.changed
}

// Effective returns the pods as they run, in place of what the cloud has of them: those of upgrades that have passed.
func (j *Journal) Effective(pods []*corev1.Pod) []*corev1.Pod {
	if j.Idle() {
		return pods
	}
	pods = slices.Clone(pods)
	for i, pod := range pods {
		r, ok := j.get(pod.UID)
		if !ok || r.State != Passed && r.State != Offered || !r.has(imagesOf(pod), func(c api.ImageChange) string { return c.From }) {
			continue
		}
		pods[i] = r.over(pod)
	}
	return pods
}

// over returns a copy of a pod with the new images, their revision, and what it was upgraded from.
func (r *Record) over(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if at := slices.IndexFunc(r.Images, func(one api.ImageChange) bool { return one.Name == c.Name }); at >= 0 {
			c.Image = r.Images[at].To
		}
	}
	metav1.SetMetaDataLabel(&pod.ObjectMeta, appsv1.ControllerRevisionHashLabelKey, r.Revision)
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, api.UpgradedOfflineAnnotation, r.annotation())
	return pod
}

// Retain returns the images, as pods' specs name them, that have to stay on the node: the new ones, and the old ones to go back
// to.
func (j *Journal) Retain() []string {
	var images []string
	for _, r := range j.all() {
		if r.State.unconfirmed() || r.State == Undoing {
			for _, c := range r.Images {
				images = append(images, c.From, c.To)
			}
		}
	}
	slices.Sort(images)
	return slices.Compact(images)
}

// Runs returns the revision to which a pod was upgraded in place, and "" if the cloud has what the pod runs, or is to run.
// settled is false while it is on probation.
func (j *Journal) Runs(pod types.UID) (revision string, settled bool) {
	r, _ := j.get(pod)
	if !r.State.unconfirmed() {
		return "", true
	}
	return r.Revision, !r.State.onProbation()
}

// Unreconciled returns the pods that run what the cloud does not have.
func (j *Journal) Unreconciled() []types.NamespacedName {
	var names []types.NamespacedName
	for _, r := range j.all() {
		if r.State.unconfirmed() {
			names = append(names, r.Pod)
		}
	}
	slices.SortFunc(names, byName)
	return names
}

func byName(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) }

// Describe gives a pod, which is the caller's own, the condition and annotation that the cloud has of its upgrade, or will have
// once it is back.
func (j *Journal) Describe(pod *corev1.Pod) {
	r, ok := j.get(pod.UID)
	if !ok {
		return
	}
	at := r.Ended
	if at.IsZero() {
		at = r.Requested
	}
	r = r.Offer()
	r.reported().Apply(pod, at)
}

// State returns the upgrade in place of a pod.
func (j *Journal) State(pod types.NamespacedName) (last api.Upgrade, ok bool) {
	for _, u := range j.States() {
		if u.Namespace == pod.Namespace && u.Pod == pod.Name && (!ok || u.Requested.After(last.Requested)) {
			last, ok = u, true
		}
	}
	return last, ok
}

// States returns those of all pods, in no order.
func (j *Journal) States() (list []api.Upgrade) {
	for _, r := range j.all() {
		list = append(list, r.upgrade(time.Now()))
	}
	return list
}

func (r *Record) upgrade(now time.Time) api.Upgrade {
	p := &api.InPlace{Images: slices.Clone(r.Images), Reason: r.Reason}
	u := api.Upgrade{
		Namespace: r.Pod.Namespace, Pod: r.Pod.Name, UID: string(r.UID), Action: api.UpgradeAction,
		Revision: r.Revision, Requested: r.Requested, InPlace: p,
	}
	if !r.Ended.IsZero() {
		u.Ended = &r.Ended
	}
	switch r.State {
	case Shown:
		u.State, p.State, u.Message = api.InProgress, api.InProbation, ": kubelet replaces the containers"
	case Probation:
		if u.State, p.State, u.Message = api.InProgress, api.InProbation, ": the new version runs, and is watched until it has been Ready for "+r.MinReady.String(); r.Due() {
			u.Message = ": the new version is Ready, and the checks of the node's owner run"
		}
	case Passed, Offered:
		u.State, p.State, u.Message = api.Done, api.Passed, ", which has yet to follow"
	case Confirmed:
		if u.State, p.State, u.Message = api.Done, api.Reconciled, ", which has followed"; r.Reason != "" {
			u.Message = "; " + r.Message
		}
	case Undoing:
		u.State, p.State, u.Message = api.Dropped, api.Undoing, "; the earlier version is started again: "+r.Message
	default:
		u.State, p.State, u.Message = api.Dropped, api.Undone, "; the earlier version runs again: "+r.Message
	}
	if u.State == api.InProgress && !r.Due() { // checks have limits of their own
		p.Until = new(now.Add(r.Limit - r.Ran).Truncate(time.Minute).Add(time.Minute)) // it is read again and again
	}
	if u.State == api.Dropped && r.Reason != api.ReasonUndone {
		u.Message += "; it is not tried again without the cloud"
	}
	u.Message = "in place, without the cloud" + u.Message
	return u
}

// Report returns what the cloud is to know of a pod. It is a podreport.Source.
func (j *Journal) Report(pod *corev1.Pod) podreport.Report {
	r, ok := j.get(pod.UID)
	if !ok {
		return podreport.Report{
			Annotations: map[string]string{api.UpgradedOfflineAnnotation: ""},
			Conditions:  []corev1.PodCondition{{Type: api.UpgradedOfflineCondition}},
		}
	}
	return r.reported()
}

// reported has the annotation only if the cloud is to follow.
func (r *Record) reported() podreport.Report {
	report := podreport.Report{
		Annotations: map[string]string{api.UpgradedOfflineAnnotation: ""},
		Conditions:  []corev1.PodCondition{r.condition()},
	}
	if r.State == Offered {
		report.Annotations[api.UpgradedOfflineAnnotation] = r.annotation()
	}
	return report
}

func (r *Record) annotation() string {
	u := api.OfflineUpgrade{Revision: r.Revision, From: r.From, Since: metav1.NewTime(r.Requested.Truncate(1e9))}
	for _, c := range r.Images {
		u.Images = append(u.Images, api.TargetImage{Name: c.Name, Image: c.To})
	}
	return u.Encode()
}

func (r *Record) condition() corev1.PodCondition {
	c := corev1.PodCondition{Type: api.UpgradedOfflineCondition, Status: corev1.ConditionFalse, Reason: r.Reason, Message: api.Message(r.Revision)}
	switch {
	case r.State.onProbation():
		c.Status, c.Reason = corev1.ConditionUnknown, api.ReasonInProbation
	case r.State == Passed, r.State == Offered:
		c.Status, c.Reason = corev1.ConditionTrue, api.ReasonPassed
	case r.State == Confirmed && r.Reason == "":
		c.Status, c.Reason = corev1.ConditionTrue, api.ReasonReconciled
	default:
		c.Message += ": " + r.Message
	}
	return c
}

// collector counts the records by state.
func (j *Journal) collector() prometheus.Collector {
	return collector{j, prometheus.NewDesc("edgehub_offline_upgrades",
		"Pods that were upgraded in place without the cloud, by state; Damaged are records that could not be read, and whose pods run as the cloud has them.",
		[]string{"state"}, nil)}
}

type collector struct {
	journal *Journal
	desc    *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c collector) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	count := map[State]int{Shown: 0, Probation: 0, Passed: 0, Offered: 0, Confirmed: 0, Undoing: 0, Undone: 0, "Damaged": c.journal.damaged()}
	for _, r := range c.journal.all() {
		count[r.State]++
	}
	for state, n := range count {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n), string(state))
	}
}
