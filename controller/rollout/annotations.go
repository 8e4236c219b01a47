package rollout

import appsv1 "k8s.io/api/apps/v1"

// Annotations of a DaemonSet that say how it is rolled out, besides
// upgrade.PrepullAnnotation. See Options.
const (
	MaxUnavailableAnnotation = "apps.openyurt.io/max-unavailable"
	PartitionAnnotation      = "apps.openyurt.io/partition"
	PausedAnnotation         = "apps.openyurt.io/rollout-paused"
	NodeSelectorAnnotation   = "apps.openyurt.io/rollout-node-selector"
	// ContinueAnnotation names the revision for which an open circuit breaker
	// does not count. A later revision has a breaker again.
	ContinueAnnotation = "apps.openyurt.io/rollout-continue"
	// PrepullTimeoutAnnotation is how long an old pod is kept for the images of the
	// new one.
	PrepullTimeoutAnnotation = "apps.openyurt.io/image-prepull-timeout"
)

// Conditions of a DaemonSet.
const (
	// CompleteCondition is True when every node that should run the daemon has an
	// available pod of the target revision, or is NotReady with a pod of it.
	CompleteCondition appsv1.DaemonSetConditionType = "RolloutComplete"
	// ProgressingCondition is True while nodes are being updated without anyone's
	// help. When it is False, its reason says what the rest waits for.
	ProgressingCondition appsv1.DaemonSetConditionType = "RolloutProgressing"
	// HaltedCondition is True while the circuit breaker is open.
	HaltedCondition appsv1.DaemonSetConditionType = "RolloutHalted"
	// InvalidCondition is True when the annotations ask for something that cannot
	// be carried out, with any update strategy. It is absent unless it once was.
	InvalidCondition appsv1.DaemonSetConditionType = "UpdateStrategyInvalid"
)

// Reasons of the conditions.
const (
	ReasonUpdating        = "Updating"
	ReasonComplete        = "AllNodesUpdated"
	ReasonPaused          = "Paused"
	ReasonHalted          = "UpdatedNodesLost"
	ReasonWaiting         = "WaitingForNotReadyNodes"
	ReasonHeldByPartition = "HeldByPartition"
	ReasonHeldBySelector  = "HeldByNodeSelector"
	ReasonInvalid         = "InvalidAnnotation"
	ReasonRefused         = "DeletionRefused"
	// ReasonAccepted is that of InvalidCondition when it is False, and
	// ReasonNotHalted that of HaltedCondition.
	ReasonAccepted  = "Accepted"
	ReasonNotHalted = "NodesStayReady"
	// ReasonNewTemplate is for the moment between a change of the DaemonSet and
	// its revision.
	ReasonNewTemplate = "WaitingForRevision"
)
