package view

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/ota/api"
)

// StateText describes the state of an upgrade in a few words, with the time until which it waits.
func StateText(u *api.Upgrade) string {
	switch {
	case u.State == api.WaitingForCloud:
		return "queued"
	case u.State == api.Scheduled && u.Next != nil:
		return "scheduled " + clock(*u.Next)
	case u.State == api.InProgress:
		return "in progress"
	}
	return strings.ToLower(string(u.State))
}

// clock is a time of this node, with the day: a hold or schedule may be days away.
func clock(t time.Time) string { return t.Local().Format("01-02 15:04") }

// AddState adds what waits for a pod, holds it, or was done with it. upgrades are all of this node.
func (r *Pod) AddState(pod *corev1.Pod, upgrades []api.Upgrade, now time.Time) {
	if h, ok, err := api.HoldOf(pod); ok && err == nil && h.Until.After(now) {
		r.HeldUntil, r.UpgradeState = &h.Until.Time, "held until "+clock(h.Until.Time)
	}
	i := slices.IndexFunc(upgrades, func(u api.Upgrade) bool { return u.UID == r.UID && !u.State.Final() })
	rolledBack := api.Condition(pod, api.RolledBackCondition)
	switch {
	case i >= 0 && (upgrades[i].State != api.Held || r.HeldUntil == nil):
		r.UpgradeState = StateText(&upgrades[i])
	case r.HeldUntil == nil && rolledBack != nil && rolledBack.Status == corev1.ConditionTrue:
		r.UpgradeState = "rolled back"
	}
}
