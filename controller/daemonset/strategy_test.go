package daemonset

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/edgehub-io/edgehub/ota/api"
)

func daemonSet(update appsv1.DaemonSetUpdateStrategyType, annotations map[string]string) *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{}
	ds.Namespace, ds.Name, ds.UID = "default", "web", "ds-uid"
	ds.Annotations = annotations
	ds.Spec.UpdateStrategy.Type = update
	return ds
}

func TestStrategyOf(t *testing.T) {
	const (
		onDelete = appsv1.OnDeleteDaemonSetStrategyType
		rolling  = appsv1.RollingUpdateDaemonSetStrategyType
	)
	tests := map[string]struct {
		update      appsv1.DaemonSetUpdateStrategyType
		annotations map[string]string
		want        Strategy
		problem     []string // words that must be there; none: no problem
	}{
		"no annotation is none of our business":      {onDelete, nil, Unmanaged, nil},
		"another annotation is none of our business": {onDelete, map[string]string{"a": "OTA"}, Unmanaged, nil},
		"OTA":                                           {onDelete, map[string]string{api.StrategyAnnotation: "OTA"}, OTA, nil},
		"ota in lower case":                             {onDelete, map[string]string{api.StrategyAnnotation: "ota"}, OTA, nil},
		"Ota in mixed case":                             {onDelete, map[string]string{api.StrategyAnnotation: "oTa"}, OTA, nil},
		"space around it does not matter":               {onDelete, map[string]string{api.StrategyAnnotation: " OTA\n"}, OTA, nil},
		"the older key":                                 {onDelete, map[string]string{api.OldStrategyAnnotation: "ota"}, OTA, nil},
		"AdvancedRollingUpdate":                         {onDelete, map[string]string{api.StrategyAnnotation: "AdvancedRollingUpdate"}, AdvancedRollingUpdate, nil},
		"ADVANCEDROLLINGUPDATE":                         {onDelete, map[string]string{api.StrategyAnnotation: "ADVANCEDROLLINGUPDATE"}, AdvancedRollingUpdate, nil},
		"auto is the older name":                        {onDelete, map[string]string{api.StrategyAnnotation: "auto"}, AdvancedRollingUpdate, nil},
		"Auto under the older key":                      {onDelete, map[string]string{api.OldStrategyAnnotation: "Auto"}, AdvancedRollingUpdate, nil},
		"the newer key wins":                            {onDelete, map[string]string{api.StrategyAnnotation: "OTA", api.OldStrategyAnnotation: "auto"}, OTA, nil},
		"the newer key wins over a wrong older one":     {onDelete, map[string]string{api.StrategyAnnotation: "OTA", api.OldStrategyAnnotation: "x"}, OTA, nil},
		"the newer key wins even if its value is wrong": {onDelete, map[string]string{api.StrategyAnnotation: "OTAA", api.OldStrategyAnnotation: "OTA"}, Undecided, []string{api.StrategyAnnotation + ` is "OTAA"`, "OTA or AdvancedRollingUpdate"}},
		"an empty value is wrong":                       {onDelete, map[string]string{api.StrategyAnnotation: ""}, Undecided, []string{`is ""`}},
		"a prefix is wrong":                             {onDelete, map[string]string{api.StrategyAnnotation: "Advanced"}, Undecided, []string{`"Advanced"`}},
		"OTA without OnDelete":                          {rolling, map[string]string{api.StrategyAnnotation: "OTA"}, Unmanaged, []string{`"OTA"`, "RollingUpdate", "to OnDelete"}},
		"the problem names the key that was used":       {rolling, map[string]string{api.OldStrategyAnnotation: "auto"}, Unmanaged, []string{api.OldStrategyAnnotation + ` is "auto"`}},
		"a wrong value without OnDelete says both":      {rolling, map[string]string{api.StrategyAnnotation: "x"}, Unmanaged, []string{`"x"`, "OTA or AdvancedRollingUpdate", "OnDelete"}},
		"long words are cut":                            {onDelete, map[string]string{api.StrategyAnnotation: strings.Repeat("x", 5000)}, Undecided, []string{"xxx...\""}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, problem := StrategyOf(daemonSet(tt.update, tt.annotations))
			if got != tt.want {
				t.Errorf("got strategy %v, want %v", got, tt.want)
			}
			if (problem != "") != (tt.problem != nil) {
				t.Errorf("got problem %q, want one: %v", problem, tt.problem != nil)
			}
			for _, words := range tt.problem {
				if !strings.Contains(problem, words) {
					t.Errorf("got problem %q, want %q in it", problem, words)
				}
			}
			if len(problem) > 1024 {
				t.Errorf("the problem has %d bytes, more than an Event takes", len(problem))
			}
		})
	}
}
