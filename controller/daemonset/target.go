package daemonset

import (
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// TargetOf reads what a node needs to know of revision. The data of a
// ControllerRevision of a DaemonSet is a patch with the whole pod template.
func TargetOf(revision *appsv1.ControllerRevision) (upgrade.Target, error) {
	name := revision.Namespace + "/" + revision.Name
	hash := revision.Labels[appsv1.ControllerRevisionHashLabelKey]
	if hash == "" {
		return upgrade.Target{}, fmt.Errorf("read ControllerRevision %s: no label %s", name, appsv1.ControllerRevisionHashLabelKey)
	}
	var data struct {
		Spec struct {
			Template struct {
				Spec corev1.PodSpec `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(revision.Data.Raw, &data); err != nil {
		return upgrade.Target{}, fmt.Errorf("read ControllerRevision %s: %w", name, err)
	}
	if len(data.Spec.Template.Spec.Containers) == 0 {
		return upgrade.Target{}, fmt.Errorf("read ControllerRevision %s: no containers in its pod template", name)
	}
	return upgrade.NewTarget(hash, &data.Spec.Template.Spec), nil
}
