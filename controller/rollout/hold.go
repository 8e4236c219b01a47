package rollout

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/api"
)

// hold is what is known of the holds of one pod. It does not change.
type hold struct {
	value   string      // of HoldAnnotation when it was read; "" if the pod had none
	written metav1.Time // Hold.Since, by the clock of the node
	reason  string
	// from and until are when it begins and ends, by the controller's clock; until is in the past
	// if the pod is not held.
	from, until time.Time
	// first is when the first hold in this chain began. The maximum counts from there.
	first time.Time
}

// nextHold returns what is known of a pod's holds, where before was known. Both may be nil.
//
// A node's clock may be wrong by years, and anybody who may patch the pod's status may write any
// time. A hold that began before its pod was created, or in the future, counts from when it was
// first seen, and for as long as it was meant to last. Other times count as they are, so that a
// controller that has just started knows since when the pod is held. Holds with less than
// api.HoldPause between them are one chain, whatever times they have.
func nextHold(before *hold, pod *corev1.Pod, maxHold time.Duration, now time.Time) *hold {
	value := pod.Annotations[api.HoldAnnotation]
	switch {
	case before == nil && value == "":
		return nil
	case before != nil && before.value == value:
		return before
	}
	out := &hold{value: value, until: now}
	if before != nil {
		out.first, out.from = before.first, before.from
		if end := before.end(maxHold); end.Before(now) {
			out.until = end
		}
	}
	h, ok, err := api.HoldOf(pod)
	length := h.Until.Sub(h.Since.Time)
	if !ok || err != nil || length <= 0 {
		return out // it is not held from now on
	}
	out.written, out.reason = h.Since, h.Reason
	switch {
	case before != nil && !h.Since.IsZero() && before.written.Equal(&h.Since):
		out.from = before.from
	case h.Since.After(now), h.Since.Time.Before(pod.CreationTimestamp.Time):
		out.from = now
	default:
		out.from = h.Since.Time
	}
	if out.first.IsZero() || out.from.Sub(out.until) >= api.HoldPause {
		out.first = out.from
	}
	out.until = out.from.Add(length)
	return out
}

// end is when the hold ends: as it says, or when the chain has lasted for the maximum.
func (h *hold) end(maxHold time.Duration) time.Time {
	if latest := h.first.Add(maxHold); latest.Before(h.until) {
		return latest
	}
	return h.until
}

// heldUntil returns until when the candidate's pod must be kept because its owner holds it; the
// zero time if it need not.
func (pl *planner) heldUntil(pod *corev1.Pod) time.Time {
	if h := pl.in.Observations.pods[pod.UID].hold; h != nil {
		if end := h.end(pl.in.Options.Policy.MaxHold); pl.in.Now.Before(end) {
			return end
		}
	}
	return time.Time{}
}

// keep records that the candidate's pod is held.
func (pl *planner) keep(c candidate) {
	h := pl.in.Observations.pods[c.pod.UID].hold
	reason := fmt.Sprintf("held by its owner until %s, at most until %s",
		c.heldUntil.UTC().Format(time.RFC3339), h.first.Add(pl.in.Options.Policy.MaxHold).UTC().Format(time.RFC3339))
	if h.reason != "" {
		reason += fmt.Sprintf(" (%q)", quotable(h.reason))
	}
	if c.unavailable != "" {
		reason += "; " + c.unavailable
	}
	pl.plan.wakeAt(c.heldUntil)
	pl.setState(c.node, c.pod, HeldByOwner, reason)
}

// overstays returns why a pod is replaced although it is held, "" if it is not held.
func (pl *planner) overstays(pod *corev1.Pod) string {
	h := pl.in.Observations.pods[pod.UID].hold
	if h == nil || !pl.in.Now.Before(h.until) {
		return ""
	}
	return fmt.Sprintf("its owner holds it until %s, and annotation %s of the DaemonSet permits %v since %s",
		h.until.UTC().Format(time.RFC3339), api.MaxHoldAnnotation, pl.in.Options.Policy.MaxHold, h.first.UTC().Format(time.RFC3339))
}

// waitsFor reports whether nodes are in state, by the will of their owners, and nothing else is under way: no
// node is pending, or those in state use up the maximum because their pods are unavailable.
func (p *Plan) waitsFor(state State) bool {
	return p.Counts[state] > 0 && p.Counts[Unavailable] == 0 && (p.Counts[Pending] == 0 || p.Unavailable >= p.Max)
}
