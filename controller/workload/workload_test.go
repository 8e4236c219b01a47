package workload

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/ota/api"
)

func statefulSet(update appsv1.StatefulSetUpdateStrategyType, annotations map[string]string) *appsv1.StatefulSet {
	sts := &appsv1.StatefulSet{}
	sts.Namespace, sts.Name, sts.UID, sts.Annotations = "default", "db", "sts-uid", annotations
	sts.Spec.UpdateStrategy.Type = update
	return sts
}

func TestStrategyOfAStatefulSet(t *testing.T) {
	const (
		onDelete = appsv1.OnDeleteStatefulSetStrategyType
		rolling  = appsv1.RollingUpdateStatefulSetStrategyType
	)
	asking := func(value string) map[string]string { return map[string]string{api.StrategyAnnotation: value} }
	tests := map[string]struct {
		update      appsv1.StatefulSetUpdateStrategyType
		annotations map[string]string
		want        daemonset.Strategy
		problem     []string // words that must be there; none: no problem
	}{
		"no annotation is none of our business":     {onDelete, nil, daemonset.Unmanaged, nil},
		"OTA":                                       {onDelete, asking("ota"), daemonset.OTA, nil},
		"the older key":                             {onDelete, map[string]string{api.OldStrategyAnnotation: "OTA"}, daemonset.OTA, nil},
		"OTA without OnDelete":                      {rolling, asking("OTA"), daemonset.Unmanaged, []string{"RollingUpdate", "to OnDelete"}},
		"a rollout is for DaemonSets":               {onDelete, asking("AdvancedRollingUpdate"), daemonset.Undecided, []string{"no update strategy for a StatefulSet: set it to OTA, or remove it", "nothing is done with this StatefulSet"}},
		"a rollout by its older name":               {onDelete, asking("auto"), daemonset.Undecided, []string{"for a StatefulSet: set it to OTA,"}},
		"a rollout without OnDelete":                {rolling, asking("auto"), daemonset.Unmanaged, []string{"set it to OTA and spec.updateStrategy.type to OnDelete"}},
		"a typo leaves alone what is under way":     {onDelete, asking("OTAA"), daemonset.Undecided, []string{"is no update strategy: set it to OTA, or"}},
		"a strategy that is not known yet, as well": {"Recreate", asking("OTA"), daemonset.Unmanaged, []string{"Recreate", "to OnDelete"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, problem := StrategyOf(statefulSet(tt.update, tt.annotations))
			if got != tt.want || (problem != "") != (tt.problem != nil) {
				t.Fatalf("got %v with problem %q", got, problem)
			}
			for _, words := range tt.problem {
				if !strings.Contains(problem, words) {
					t.Errorf("problem %q lacks %q", problem, words)
				}
			}
		})
	}
}

func revision(name string, number int64, owner types.UID) *appsv1.ControllerRevision {
	controls := true
	r := &appsv1.ControllerRevision{Revision: number}
	r.Namespace, r.Name = "default", name
	r.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: string(StatefulSet), Name: "db", UID: owner, Controller: &controls}}
	r.Data.Raw = []byte(`{"spec":{"template":{"$patch":"replace","spec":{"containers":[{"name":"db","image":"` + name + `"}]}}}}`)
	return r
}

func TestTargetRevisionOfAStatefulSet(t *testing.T) {
	older, newer := revision("db-old", 1, "sts-uid"), revision("db-new", 2, "sts-uid")
	sts := func(generation, observed int64, update string) *appsv1.StatefulSet {
		out := statefulSet(appsv1.OnDeleteStatefulSetStrategyType, nil)
		out.Generation, out.Status.ObservedGeneration, out.Status.UpdateRevision = generation, observed, update
		return out
	}
	tests := map[string]struct {
		sts       *appsv1.StatefulSet
		revisions []*appsv1.ControllerRevision
		want      *appsv1.ControllerRevision
	}{
		"the one that its status names":                       {sts(2, 2, "db-new"), []*appsv1.ControllerRevision{older, newer}, newer},
		"not the one with the highest number, after an undo":  {sts(3, 3, "db-old"), []*appsv1.ControllerRevision{older, newer}, older},
		"a status of an older generation names an older one":  {sts(3, 2, "db-old"), []*appsv1.ControllerRevision{older, newer}, nil},
		"its revision has not arrived yet":                    {sts(2, 2, "db-new"), []*appsv1.ControllerRevision{older}, nil},
		"the revision is of another StatefulSet of that name": {sts(2, 2, "db-new"), []*appsv1.ControllerRevision{revision("db-new", 2, "former")}, nil},
		"Kubernetes has not seen the StatefulSet yet":         {sts(1, 0, ""), nil, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := TargetRevision(tt.sts, tt.revisions)
			if got != tt.want {
				t.Fatalf("got %v, want %v", got, tt.want)
			}
			if got == nil {
				return
			}
			target, err := daemonset.TargetOf(got)
			if err != nil || target.Revision != got.Name || target.Containers[0].Image != got.Name {
				t.Errorf("got target %+v, %v; want the revision's name, which is in the label of its pods", target, err)
			}
		})
	}
}
