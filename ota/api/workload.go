package api

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// Annotations of DaemonSets and StatefulSets by which an admin says how they are rolled out, besides PrepullAnnotation,
// PolicyAnnotation and those next to it.
const (
	// StrategyAnnotation on a DaemonSet names the strategy it opts into.
	StrategyAnnotation = "apps.openyurt.io/update-strategy"
	// OldStrategyAnnotation is its older name, read when the newer is absent.
	OldStrategyAnnotation = "apps.openyurt.io/upgrade-strategy"

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

// Annotations that the controller writes on DaemonSets and StatefulSets.
const (
	// ReportAnnotation on one that opted in has the controller's report, as JSON; see package controller/rollout.
	ReportAnnotation = "apps.openyurt.io/rollout-report"
	// RetriedAnnotation has the time at which Kubernetes' own controller was made to try again to make a pod.
	RetriedAnnotation = "apps.openyurt.io/retried-at"
)

// Conditions of a DaemonSet.
const (
	// CompleteCondition is True when every node that should run the daemon has an
	// available pod of the target revision, or is NotReady with a pod of it. With the strategy OTA it is
	// the only one of the rollout.
	CompleteCondition appsv1.DaemonSetConditionType = "RolloutComplete"
	// ProgressingCondition is True while nodes are being updated and nobody has to help.
	// When it is False, its reason is what the other nodes wait for.
	ProgressingCondition appsv1.DaemonSetConditionType = "RolloutProgressing"
	// HaltedCondition is True while the circuit breaker is open.
	HaltedCondition appsv1.DaemonSetConditionType = "RolloutHalted"
	// InvalidCondition is True when the annotations ask for something that cannot
	// be carried out, with any update strategy. It is absent unless it once was.
	InvalidCondition appsv1.DaemonSetConditionType = "UpdateStrategyInvalid"
)

// Annotations of Nodes by which an admin says for how long pods stay on a node that is away. The first two are OpenYurt's;
// the older one counts only without the newer one.
const (
	// AutonomyAnnotation is a Go duration; 0 is any outage.
	AutonomyAnnotation = "node.openyurt.io/autonomy-duration"
	// OldAutonomyAnnotation is true, which is any outage, or false.
	OldAutonomyAnnotation = "node.beta.openyurt.io/autonomy"
	// ReleasedAnnotation is the time, in RFC 3339, at which a person gave up waiting for a node that is away. Its
	// pods are evicted now. The controller removes the annotation when the node is back.
	ReleasedAnnotation = "apps.openyurt.io/autonomy-released"
)

// Annotations of pods, with OpenYurt's names, that have what tolerationSeconds were before. A pod with one of them is
// held.
const (
	OriginalNotReadyAnnotation    = "apps.openyurt.io/original-not-ready-toleration-duration"
	OriginalUnreachableAnnotation = "apps.openyurt.io/original-unreachable-toleration-duration"
)

// Conditions of a Node.
const (
	// AutonomyCondition shows whether the node's pods stay while it is away: True if every pod that is to stay has the
	// seconds for it. kubelet keeps conditions that it does not know.
	AutonomyCondition corev1.NodeConditionType = "apps.openyurt.io/Autonomy"
	// ClonedCondition says whether several machines run as this node. A Node that never had a clone has none. The hub sets it.
	ClonedCondition corev1.NodeConditionType = "apps.openyurt.io/Cloned"
)
