package admission

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/api"
)

// statefulSet is a daemonSet of the other kind.
func statefulSet(update appsv1.StatefulSetUpdateStrategyType, annotations map[string]string) *appsv1.StatefulSet {
	ds := daemonSet(onDelete, annotations)
	sts := &appsv1.StatefulSet{ObjectMeta: ds.ObjectMeta}
	sts.Spec.Selector, sts.Spec.Template = ds.Spec.Selector, ds.Spec.Template
	sts.Spec.UpdateStrategy.Type = update
	return sts
}

func TestStrategiesOfAStatefulSet(t *testing.T) {
	const (
		onDelete = appsv1.OnDeleteStatefulSetStrategyType
		rolling  = appsv1.RollingUpdateStatefulSetStrategyType
	)
	tests := map[string]struct {
		update      appsv1.StatefulSetUpdateStrategyType
		annotations map[string]string
		want        []string // none: it is accepted
	}{
		"no annotation at all":              {rolling, nil, nil},
		"OTA":                               {onDelete, map[string]string{strategyKey: " ota "}, nil},
		"OTA under the older key":           {onDelete, map[string]string{oldStrategyKey: "OTA"}, nil},
		"OTA with RollingUpdate":            {rolling, map[string]string{strategyKey: "OTA"}, []string{"type is RollingUpdate", "to OnDelete"}},
		"a rollout":                         {onDelete, map[string]string{strategyKey: "AdvancedRollingUpdate"}, []string{`"AdvancedRollingUpdate", which is no update strategy for a StatefulSet: set it to OTA, or remove it`}},
		"a rollout by its older name":       {rolling, map[string]string{strategyKey: "auto"}, []string{"for a StatefulSet: set it to OTA and spec.updateStrategy.type to OnDelete"}},
		"a word without meaning":            {onDelete, map[string]string{strategyKey: "x"}, []string{"which is no update strategy: set it to OTA, or"}},
		"options of rollouts are not read":  {onDelete, map[string]string{strategyKey: "OTA", api.MaxUnavailableAnnotation: "abc"}, nil},
		"images first is read with OTA too": {onDelete, map[string]string{strategyKey: "OTA", api.PrepullAnnotation: "yes"}, []string{`image-prepull is "yes"`}},
		"what owners may do":                {onDelete, map[string]string{strategyKey: "OTA", api.RollbackHistoryAnnotation: "11"}, []string{`rollback-history is "11"`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := env.admin.AppsV1().StatefulSets(namespace).Create(t.Context(), statefulSet(tt.update, tt.annotations),
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			expectRefusal(t, err, tt.want...)
		})
	}
}

func TestAMisspeltKeyOfAStatefulSetIsWarnedAbout(t *testing.T) {
	client, w := warned(t)
	for key, want := range map[string]int{misspelt: 1, strategyKey: 0, api.MaxHoldAnnotation: 0, api.RetriedAnnotation: 0, api.HoldAnnotation: 1} {
		sts := statefulSet(appsv1.OnDeleteStatefulSetStrategyType, map[string]string{key: "OTA"})
		if _, err := client.AppsV1().StatefulSets(namespace).Create(t.Context(), sts, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			t.Errorf("%s: refused: %v", key, err)
		}
		if got := w.take(); len(got) != want {
			t.Errorf("%s: got %q, want %d warnings", key, got, want)
		}
	}
}
