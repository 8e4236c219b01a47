package view

import (
	"fmt"
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
	case u.State == api.Dropped && u.InPlace != nil:
		return "undone"
	}
	return strings.ToLower(string(u.State))
}

// InPlaceOf returns the upgrade in place of the pod with a UID, or nil.
func InPlaceOf(uid string, upgrades []api.Upgrade) *api.Upgrade {
	i := slices.IndexFunc(upgrades, func(u api.Upgrade) bool { return u.UID == uid && u.InPlace != nil })
	if i < 0 {
		return nil
	}
	return &upgrades[i]
}

// MessageText is the message of an upgrade, with the time by which it is known whether one in place works.
func MessageText(u *api.Upgrade) string {
	if u.InPlace == nil || u.InPlace.Until == nil {
		return u.Message
	}
	return u.Message + "; by " + clock(*u.InPlace.Until) + " it is known whether the new version works"
}

// InPlaceText is a sentence about an upgrade in place.
func InPlaceText(u *api.Upgrade) string {
	var changes []string
	for _, c := range u.InPlace.Images {
		changes = append(changes, (&ImageChange{Now: c.From, AfterUpgrade: &c.To}).String())
	}
	return strings.Join(strings.Fields(fmt.Sprintf("%s/%s was upgraded to %s (%s) at %s, %s.",
		u.Namespace, u.Pod, u.Revision, strings.Join(changes, ", "), clock(u.Requested), MessageText(u))), " ")
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
	if own := InPlaceOf(r.UID, upgrades); own != nil && own.InPlace.State != api.Reconciled {
		r.Upgrade = own
	}
	switch {
	case i >= 0 && (upgrades[i].State != api.Held || r.HeldUntil == nil):
		r.UpgradeState = StateText(&upgrades[i])
	case r.HeldUntil == nil && r.Upgrade != nil && r.Upgrade.State == api.Done:
		r.UpgradeState = "upgraded offline"
	case r.HeldUntil == nil && r.Upgrade != nil:
		r.UpgradeState = StateText(r.Upgrade)
	case r.HeldUntil == nil && rolledBack != nil && rolledBack.Status == corev1.ConditionTrue:
		r.UpgradeState = "rolled back"
	}
}
