package daemonset

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func revision(hash string, number int64, owner types.UID, controller bool) *appsv1.ControllerRevision {
	r := &appsv1.ControllerRevision{Revision: number}
	r.Namespace, r.Name = "default", "web-"+hash
	r.Labels = map[string]string{appsv1.ControllerRevisionHashLabelKey: hash}
	r.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "web", UID: owner, Controller: &controller}}
	return r
}

func TestNewestRevision(t *testing.T) {
	ours := func(hash string, number int64) *appsv1.ControllerRevision {
		return revision(hash, number, "ds-uid", true)
	}
	tests := map[string]struct {
		generation, observed int64
		revisions            []*appsv1.ControllerRevision
		want                 string // hash; "" for none
	}{
		"the highest number is the newest":                {1, 1, []*appsv1.ControllerRevision{ours("a", 1), ours("b", 2)}, "b"},
		"order does not matter":                           {1, 1, []*appsv1.ControllerRevision{ours("b", 2), ours("a", 1)}, "b"},
		"10 is higher than 9":                             {1, 1, []*appsv1.ControllerRevision{ours("a", 10), ours("b", 9)}, "a"},
		"an undo gives an old revision the highest again": {3, 3, []*appsv1.ControllerRevision{ours("a", 3), ours("b", 2)}, "a"},
		"not known while a new template waits":            {2, 1, []*appsv1.ControllerRevision{ours("a", 1)}, ""},
		"not known while there is none":                   {1, 1, nil, ""},
		"that of another of the same name does not count": {1, 1, []*appsv1.ControllerRevision{ours("a", 1), revision("b", 9, "other", true)}, "a"},
		"one that is owned but not controlled is no ours": {1, 1, []*appsv1.ControllerRevision{ours("a", 1), revision("b", 9, "ds-uid", false)}, "a"},
		"equal numbers have one answer":                   {1, 1, []*appsv1.ControllerRevision{ours("b", 1), ours("a", 1)}, "b"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ds := daemonSet(appsv1.OnDeleteDaemonSetStrategyType, nil)
			ds.Generation, ds.Status.ObservedGeneration = tt.generation, tt.observed
			got := ""
			if r := NewestRevision(ds, tt.revisions); r != nil {
				got = r.Labels[appsv1.ControllerRevisionHashLabelKey]
			}
			if got != tt.want {
				t.Errorf("got revision %q, want %q", got, tt.want)
			}
		})
	}
}
