package rollout

// Annotations of a DaemonSet that control its rollout, besides
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
