package controller_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/api"
)

// lenience is for how long after a fault the controller cannot be blamed for not knowing
// of it: the latest of all watches, and as long as client-go waits before it watches again
// after an outage.
const lenience = latest + time.Minute

// latest is the greatest delay of a watch.
const latest = 59 * time.Second

// judge is called with the apiserver locked before a pod is deleted.
func (m *model) judge(victim *corev1.Pod) {
	on, pods := rollout.NodeOf(victim), m.podsLocked()
	if m.api.faults.late["daemonsets"] > 0 {
		m.api.disturbed = time.Now()
	}
	m.deleted = append(m.deleted, on)
	if victim.Labels[appsv1.ControllerRevisionHashLabelKey] == m.targetLocked() && time.Since(m.api.disturbed) > lenience {
		m.wrong = append(m.wrong, fmt.Sprintf("the pod on %s was deleted, which runs the target revision", on))
	}
	if !available(pods[on]) {
		return // it serves nobody
	}
	var down []string
	for _, node := range m.nodesLocked() {
		fresh := time.Since(m.faultAt[node.Name]) < lenience
		if node.Name == on && !nodeReady(node) && !fresh {
			m.wrong = append(m.wrong, fmt.Sprintf("the pod on %s was deleted, which is not Ready", on))
		}
		if node.Name == on || nodeReady(node) && !fresh && !available(pods[node.Name]) {
			down = append(down, node.Name)
		}
	}
	if len(down) > m.max {
		m.wrong = append(m.wrong, fmt.Sprintf("the pod on %s was deleted: that makes %v without an available pod, of at most %d", on, down, m.max))
	}
}

// judgePatch is judge for a patch of a pod.
func (m *model) judgePatch(before, after *corev1.Pod) {
	image, hash := after.Spec.Containers[0].Image, after.Labels[appsv1.ControllerRevisionHashLabelKey]
	if image == before.Spec.Containers[0].Image && hash == before.Labels[appsv1.ControllerRevisionHashLabelKey] {
		return
	}
	if r, ok, err := api.OfflineUpgradeOf(before); ok && err == nil {
		c := api.Condition(before, api.UpgradedOfflineCondition)
		if hash != r.Revision || hash != hashOf(image) || image != r.Images[0].Image || c == nil || c.Status != corev1.ConditionTrue || !before.DeletionTimestamp.IsZero() {
			m.wrong = append(m.wrong, fmt.Sprintf("the pod on %s got %s and hash %s, for the report %+v, %+v", rollout.NodeOf(before), image, hash, r, c))
		}
		return
	}
	wish, _, _ := api.RollbackOf(before)
	late := time.Since(m.changed) < lenience || time.Since(m.api.disturbed) < lenience
	if hash != wish.Revision || hash != hashOf(image) || wish.From != m.targetLocked() && !late {
		m.wrong = append(m.wrong, fmt.Sprintf("the pod on %s got %s and hash %s, for the wish %+v", rollout.NodeOf(before), image, hash, wish))
	}
}

func (m *model) targetLocked() string { return hashOf(imageOf(m.daemonSetLocked())) }

// truth is what the conditions must report about Ready nodes once nothing has changed
// for long. stays reports whether the deletion of a pod is refused.
type truth struct {
	status, reason string
	updated        int
	refused        []string // nodes
	stuck          []string // nodes whose pod should have been replaced by now
}

func (m *model) truthLocked(stays func(*corev1.Pod) bool) truth {
	var (
		out     truth
		pods    = m.podsLocked()
		down    int // without an available pod
		moving  int // of them, those that get one
		waiting []string
	)
	for _, node := range m.nodesLocked() {
		on := pods[node.Name]
		if !available(on) {
			down++
		}
		current := len(on) == 1 && on[0].Labels[appsv1.ControllerRevisionHashLabelKey] == m.targetLocked()
		switch {
		case len(on) != 1, current && !podReady(on[0]):
			moving++
		case current:
			out.updated++
		case stays(on[0]):
			out.refused = append(out.refused, node.Name)
		case podReady(on[0]):
			waiting = append(waiting, node.Name)
		default:
			out.stuck = append(out.stuck, node.Name)
		}
	}
	if down < m.max {
		out.stuck = append(out.stuck, waiting...)
	}
	out.status, out.reason = "False", rollout.ReasonComplete
	switch {
	case moving > 0:
		out.status, out.reason = "True", rollout.ReasonUpdating
	case len(out.refused) > 0:
		out.reason = rollout.ReasonRefused
	}
	return out
}

// conditionLocked returns a condition of the DaemonSet, the zero value if it has none.
func (m *model) conditionLocked(t appsv1.DaemonSetConditionType) appsv1.DaemonSetCondition {
	for _, c := range m.daemonSetLocked().Status.Conditions {
		if c.Type == t {
			return c
		}
	}
	return appsv1.DaemonSetCondition{}
}

// check compares the conditions with the truth. words are part of the apiserver's message
// when it refuses a deletion.
func (m *model) check(words string, stays func(*corev1.Pod) bool) (wrong []string) {
	m.api.mu.Lock()
	defer m.api.mu.Unlock()
	want := m.truthLocked(stays)
	if len(want.stuck) > 0 {
		wrong = append(wrong, fmt.Sprintf("nothing is done about the pods on %v", want.stuck))
	}
	progressing, complete := m.conditionLocked(api.ProgressingCondition), m.conditionLocked(api.CompleteCondition)
	if string(progressing.Status) != want.status || progressing.Reason != want.reason {
		wrong = append(wrong, fmt.Sprintf("Progressing is %s because of %s, and it is %+v: %s", progressing.Status, progressing.Reason, want, progressing.Message))
	}
	if done := want.reason == rollout.ReasonComplete; done != (complete.Status == corev1.ConditionTrue) {
		wrong = append(wrong, fmt.Sprintf("Complete is %s, and it is %+v: %s", complete.Status, want, complete.Message))
	}
	says := fmt.Sprintf("controllerrevision %s: %d of %d nodes updated", m.targetLocked(), want.updated, len(m.nodesLocked()))
	if !strings.HasPrefix(progressing.Message, says) {
		wrong = append(wrong, fmt.Sprintf("Progressing does not say %q, but %s", says, progressing.Message))
	}
	report, current := rollout.ReportOn(m.daemonSetLocked())
	if report == nil || !current || report.Reason != progressing.Reason || !strings.HasPrefix(progressing.Message, "controllerrevision "+report.Revision+": "+report.Message) ||
		want.updated > 0 && report.StateOf("", report.Revision).Count != want.updated {
		wrong = append(wrong, fmt.Sprintf("the report is %+v, current: %t; and Progressing is %+v", report, current, progressing))
	}
	if progressing.Reason != rollout.ReasonRefused {
		return wrong // the others may use up the maximum, so that nobody tried to delete the refused ones
	}
	named := func(node string) bool { return strings.Contains(progressing.Message, "("+node) }
	if !slices.ContainsFunc(want.refused, named) || !strings.Contains(progressing.Message, words) {
		wrong = append(wrong, fmt.Sprintf("Progressing does not say that %q keeps the pods on %v, but %s", words, want.refused, progressing.Message))
	}
	return wrong
}

// eventsOf returns the messages of Events with this reason on the object with this UID.
func (m *model) eventsOf(uid, reason string) []string {
	m.api.mu.Lock()
	defer m.api.mu.Unlock()
	var out []string
	for i := range m.api.events {
		if e := &m.api.events[i]; e.Reason == reason && string(e.InvolvedObject.UID) == uid {
			out = append(out, e.Message)
		}
	}
	return slices.Compact(out)
}

func (m *model) violations() []string {
	m.api.mu.Lock()
	defer m.api.mu.Unlock()
	return m.wrong
}

// busiest returns the most requests in a minute, and which they were.
func (a *apiserver) busiest() (most int, what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, first := 0, 0; i < len(a.calls); i++ {
		for a.calls[i].at.Sub(a.calls[first].at) >= time.Minute {
			first++
		}
		if n := i - first + 1; n > most {
			sums := map[string]int{}
			for _, c := range a.calls[first : i+1] {
				sums[c.verb+" "+c.resource]++
			}
			most, what = n, fmt.Sprintf("%v until %v", sums, a.calls[i].at.Format(time.TimeOnly))
		}
	}
	return most, what
}
