package daemonset

import (
	appsv1 "k8s.io/api/apps/v1"
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
