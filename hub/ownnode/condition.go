package ownnode

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/api"
)

// ClonedReason is the reason of the condition while there is a clone, and of the Event that says so.
const ClonedReason = "NodeCloned"

// setEvery bounds how often the condition is set: what a Node says is not at once what was written.
const setEvery = time.Minute

// Run sets the condition, until ctx ends.
func (n *Node) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-n.conditions:
			if err := n.SetCondition(ctx, c); err != nil {
				n.Logger.Warn("the condition of the Node cannot be set; it is tried again", "node", n.Name, "type", c.Type, "status", c.Status, "err", err)
			}
		}
	}
}

// compare has the condition set if a Node that was read has another. That there is no clone is known only after some time: a hub
// that has just started has not seen it yet, nor has one that was without the cloud.
func (n *Node) compare(node *corev1.Node) {
	has := corev1.ConditionStatus("")
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == api.ClonedCondition {
			has = node.Status.Conditions[i].Status
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if now.Sub(n.seen) > cloneWindow/2 {
		n.since = now
	}
	n.seen = now
	is := n.clone.there(now)
	wrong := is && has != corev1.ConditionTrue || !is && has == corev1.ConditionTrue && now.Sub(n.since) > cloneWindow
	if !wrong || !n.set.IsZero() && now.Sub(n.set) < setEvery {
		return
	}
	at := metav1.NewTime(now)
	c := corev1.NodeCondition{
		Type: api.ClonedCondition, Status: corev1.ConditionFalse, LastHeartbeatTime: at, LastTransitionTime: at,
		Reason: "OneMachine", Message: "no other machine was seen to run as this node for ten minutes",
	}
	if is {
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, ClonedReason, n.tellLocked()
	}
	select {
	case n.conditions <- c:
		n.set = now
	default: // the last one is still on its way
	}
}
