package daemonset

import (
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/api"
)

// NewestRevision returns the revision that ds wants its pods to run, nil while
// that is not known: Kubernetes has yet to see the newest template, or its
// ControllerRevision has yet to arrive here. Both bring an event when they come.
//
// It is read, never computed from the template: an apiserver newer than this
// program fills in fields it does not know, and every pod would look old. As
// `kubectl rollout undo` gives an old revision the highest number again, pods
// that still run it are at the target at once.
func NewestRevision(ds *appsv1.DaemonSet, revisions []*appsv1.ControllerRevision) *appsv1.ControllerRevision {
	if ds.Status.ObservedGeneration < ds.Generation {
		return nil
	}
	var newest *appsv1.ControllerRevision
	for _, revision := range revisions {
		if Controls(ds, revision) && (newest == nil || newer(revision, newest)) {
			newest = revision
		}
	}
	return newest
}

// newer orders by revision number. Equal numbers do not last, since Kubernetes
// renumbers; the name makes the answer the same until then.
func newer(a, b *appsv1.ControllerRevision) bool {
	if a.Revision != b.Revision {
		return a.Revision > b.Revision
	}
	return a.Name > b.Name
}

// HashOf returns what the pods of a revision have as the value of their label
// controller-revision-hash, or "" if that is not known. Pods of a StatefulSet have the
// ControllerRevision's name there, and those of a DaemonSet the value of the same label.
func HashOf(revision *appsv1.ControllerRevision) string {
	if owner := metav1.GetControllerOfNoCopy(revision); owner != nil && owner.Kind == "StatefulSet" {
		return revision.Name
	}
	return revision.Labels[appsv1.ControllerRevisionHashLabelKey]
}

// TargetOf reads what a node needs to know of revision. The data of a ControllerRevision of a
// DaemonSet or StatefulSet is a patch with the whole pod template.
func TargetOf(revision *appsv1.ControllerRevision) (api.Target, error) {
	name := revision.Namespace + "/" + revision.Name
	hash := HashOf(revision)
	if hash == "" {
		return api.Target{}, fmt.Errorf("read ControllerRevision %s: no label %s", name, appsv1.ControllerRevisionHashLabelKey)
	}
	var data struct {
		Spec struct {
			Template struct {
				Spec corev1.PodSpec `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(revision.Data.Raw, &data); err != nil {
		return api.Target{}, fmt.Errorf("read ControllerRevision %s: %w", name, err)
	}
	if len(data.Spec.Template.Spec.Containers) == 0 {
		return api.Target{}, fmt.Errorf("read ControllerRevision %s: no containers in its pod template", name)
	}
	target := api.NewTarget(hash, &data.Spec.Template.Spec)
	target.Number = revision.Revision
	return target, nil
}
