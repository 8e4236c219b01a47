package controller

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
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
		want        strategy
		problem     []string // words that must be there; none: no problem
	}{
		"no annotation is none of our business":      {onDelete, nil, unmanaged, nil},
		"another annotation is none of our business": {onDelete, map[string]string{"a": "OTA"}, unmanaged, nil},
		"OTA":                                           {onDelete, map[string]string{strategyAnnotation: "OTA"}, ota, nil},
		"ota in lower case":                             {onDelete, map[string]string{strategyAnnotation: "ota"}, ota, nil},
		"Ota in mixed case":                             {onDelete, map[string]string{strategyAnnotation: "oTa"}, ota, nil},
		"space around it does not matter":               {onDelete, map[string]string{strategyAnnotation: " OTA\n"}, ota, nil},
		"the older key":                                 {onDelete, map[string]string{oldStrategyAnnotation: "ota"}, ota, nil},
		"AdvancedRollingUpdate":                         {onDelete, map[string]string{strategyAnnotation: "AdvancedRollingUpdate"}, advancedRollingUpdate, nil},
		"ADVANCEDROLLINGUPDATE":                         {onDelete, map[string]string{strategyAnnotation: "ADVANCEDROLLINGUPDATE"}, advancedRollingUpdate, nil},
		"auto is the older name":                        {onDelete, map[string]string{strategyAnnotation: "auto"}, advancedRollingUpdate, nil},
		"Auto under the older key":                      {onDelete, map[string]string{oldStrategyAnnotation: "Auto"}, advancedRollingUpdate, nil},
		"the newer key wins":                            {onDelete, map[string]string{strategyAnnotation: "OTA", oldStrategyAnnotation: "auto"}, ota, nil},
		"the newer key wins over a wrong older one":     {onDelete, map[string]string{strategyAnnotation: "OTA", oldStrategyAnnotation: "x"}, ota, nil},
		"the newer key wins even if its value is wrong": {onDelete, map[string]string{strategyAnnotation: "OTAA", oldStrategyAnnotation: "OTA"}, undecided, []string{strategyAnnotation + ` is "OTAA"`, "OTA or AdvancedRollingUpdate"}},
		"an empty value is wrong":                       {onDelete, map[string]string{strategyAnnotation: ""}, undecided, []string{`is ""`}},
		"a prefix is wrong":                             {onDelete, map[string]string{strategyAnnotation: "Advanced"}, undecided, []string{`"Advanced"`}},
		"OTA without OnDelete":                          {rolling, map[string]string{strategyAnnotation: "OTA"}, unmanaged, []string{`"OTA"`, "RollingUpdate", "to OnDelete"}},
		"the problem names the key that was used":       {rolling, map[string]string{oldStrategyAnnotation: "auto"}, unmanaged, []string{oldStrategyAnnotation + ` is "auto"`}},
		"a wrong value without OnDelete says both":      {rolling, map[string]string{strategyAnnotation: "x"}, unmanaged, []string{`"x"`, "OTA or AdvancedRollingUpdate", "OnDelete"}},
		"long words are cut":                            {onDelete, map[string]string{strategyAnnotation: strings.Repeat("x", 5000)}, undecided, []string{"xxx...\""}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, problem := strategyOf(daemonSet(tt.update, tt.annotations))
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
			if len(problem) > maxEventMessage {
				t.Errorf("the problem has %d bytes, more than an Event takes", len(problem))
			}
		})
	}
}
