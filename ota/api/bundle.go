package api

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// UpgradeBundles is the path of the signed bundles: POST of one in the DSSE format offers its revision to the pods of this node, and
// GET lists those that were. The answer to POST is an UpgradeBundle, and to GET an UpgradeBundleList.
const UpgradeBundles = "/openyurt.io/v1/upgradebundles"

const (
	// UpgradeBundleFile is the name of the envelope in the file of a bundle.
	UpgradeBundleFile = "edgehub-bundle.json"
	// MaxUpgradeBundle bounds the envelope, in bytes: a target of a hundred images with long names has 30 kB.
	MaxUpgradeBundle = 256 << 10
)

// DryRunParam of POST UpgradeBundles has the bundle verified, and nothing else: its value is DryRunAll, as with an apiserver.
const (
	DryRunParam = "dryRun"
	DryRunAll   = "All"
)

// UpgradeBundle is a signed bundle on a node.
type UpgradeBundle struct {
	Kind      string    `json:"kind"` // DaemonSet or StatefulSet
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	// Revision is the hash of the revision that it brings, and Number the revision's number.
	Revision string `json:"revision"`
	Number   int64  `json:"revisionNumber"`
	// Key is the name of the admin's key that has signed it.
	Key     string    `json:"key"`
	Issued  time.Time `json:"issued"`
	Expires time.Time `json:"expires"`
	// Images are the digests of those that the file has, by the names in Containers.
	Images map[string]string `json:"images,omitempty"`
	// Containers are the images of the revision.
	Containers []TargetImage `json:"containers"`
	// Pods are those of this node that it offers the revision to, or that know of it from the cloud, as NAMESPACE/NAME.
	Pods []string `json:"pods"`
	// Problem is why it offers the revision to no pod now; "" if it does.
	Problem string `json:"problem,omitempty"`
}

// UpgradeBundleList is the answer to GET of UpgradeBundles.
type UpgradeBundleList struct {
	Items []UpgradeBundle `json:"items"`
}

// WithTarget returns a copy of a pod as the controller marks one that needs an upgrade to t, since a time.
func WithTarget(pod *corev1.Pod, t Target, reason string, since time.Time) *corev1.Pod {
	pod = pod.DeepCopy()
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[TargetAnnotation] = t.Encode()
	condition := Condition(pod, NeedCondition)
	if condition == nil {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: NeedCondition})
		condition = &pod.Status.Conditions[len(pod.Status.Conditions)-1]
	}
	condition.Status, condition.Reason, condition.Message = corev1.ConditionTrue, reason, Message(t.Revision)
	condition.LastTransitionTime.Time = since
	return pod
}
