package admission

import (
	"context"
	"maps"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// DaemonSets that are there before the policy is, by name.
var early = map[string]*appsv1.DaemonSet{
	"plain":          daemonSet(rolling, nil),
	"right":          daemonSet(onDelete, map[string]string{strategyKey: "AdvancedRollingUpdate", api.MaxUnavailableAnnotation: "2"}),
	"older-key":      daemonSet(onDelete, map[string]string{oldStrategyKey: "auto"}),
	"wrong-strategy": daemonSet(onDelete, map[string]string{strategyKey: "Advanced"}),
	"wrong-maximum":  daemonSet(onDelete, map[string]string{strategyKey: "AdvancedRollingUpdate", api.MaxUnavailableAnnotation: "abc"}),
	"wrong-type":     daemonSet(rolling, map[string]string{strategyKey: "AdvancedRollingUpdate", api.MaxUnavailableAnnotation: "abc"}),
	"ota":            daemonSet(onDelete, map[string]string{strategyKey: "OTA", api.MaxUnavailableAnnotation: "abc"}),
	"wrong-prepull":  daemonSet(onDelete, map[string]string{strategyKey: "OTA", api.PrepullAnnotation: "yes", api.PrepullTimeoutAnnotation: "0"}),
}

func createWrongOnes(ctx context.Context) error {
	for name, ds := range early {
		ds = ds.DeepCopy()
		ds.Name, ds.GenerateName = name, ""
		if _, err := env.admin.AppsV1().DaemonSets(namespace).Create(ctx, ds, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func TestOnlyWhatARequestSetsIsLookedAt(t *testing.T) {
	annotate := func(key, value string) func(*appsv1.DaemonSet) {
		return func(ds *appsv1.DaemonSet) {
			ds.Annotations = maps.Clone(ds.Annotations)
			if ds.Annotations == nil {
				ds.Annotations = map[string]string{}
			}
			ds.Annotations[key] = value
		}
	}
	without := func(key string, also ...func(*appsv1.DaemonSet)) func(*appsv1.DaemonSet) {
		return func(ds *appsv1.DaemonSet) {
			delete(ds.Annotations, key)
			for _, change := range also {
				change(ds)
			}
		}
	}
	update := func(to appsv1.DaemonSetUpdateStrategyType) func(*appsv1.DaemonSet) {
		return func(ds *appsv1.DaemonSet) { ds.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: to} }
	}
	image := func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.Containers[0].Image = "web:v2" }
	label := func(ds *appsv1.DaemonSet) { ds.Labels = map[string]string{"touched": "yes"} }

	tests := map[string]struct {
		name   string // of the DaemonSet that is changed
		change func(*appsv1.DaemonSet)
		want   []string // none: it is accepted
	}{
		"a new image for one that did not opt in":                   {"plain", image, nil},
		"a new image for one that did":                              {"right", image, nil},
		"a wrong maximum in place of a right one":                   {"right", annotate(api.MaxUnavailableAnnotation, "101%"), []string{`max-unavailable is "101%"`}},
		"a wrong partition beside a right maximum":                  {"right", annotate(api.PartitionAnnotation, "-1"), []string{`partition is "-1"`}},
		"a wrong strategy in place of a right one":                  {"right", annotate(strategyKey, "x"), []string{`is "x"`}},
		"RollingUpdate in place of OnDelete":                        {"right", update(rolling), []string{"type is RollingUpdate", "OnDelete"}},
		"opting out":                                                {"right", without(strategyKey), nil},
		"a wrong newer key beside a right older one":                {"older-key", annotate(strategyKey, "x"), []string{strategyKey + ` is "x"`}},
		"a new image for one whose strategy was wrong before":       {"wrong-strategy", image, nil},
		"a pause for one whose strategy was wrong before":           {"wrong-strategy", annotate(api.PausedAnnotation, "true"), nil},
		"another wrong strategy in place of a wrong one":            {"wrong-strategy", annotate(strategyKey, "AdvancedRolling"), []string{`is "AdvancedRolling"`}},
		"a right strategy in place of a wrong one":                  {"wrong-strategy", annotate(strategyKey, "AdvancedRollingUpdate"), nil},
		"a new image for one whose maximum was wrong before":        {"wrong-maximum", image, nil},
		"a label for one whose maximum was wrong before":            {"wrong-maximum", label, nil},
		"a pause for one whose maximum was wrong before":            {"wrong-maximum", annotate(api.PausedAnnotation, "true"), nil},
		"another wrong maximum in place of a wrong one":             {"wrong-maximum", annotate(api.MaxUnavailableAnnotation, "abcd"), []string{`max-unavailable is "abcd"`}},
		"a right maximum in place of a wrong one":                   {"wrong-maximum", annotate(api.MaxUnavailableAnnotation, "3"), nil},
		"no maximum in place of a wrong one":                        {"wrong-maximum", without(api.MaxUnavailableAnnotation), nil},
		"a new image for one that had RollingUpdate before":         {"wrong-type", image, nil},
		"another strategy for one that had RollingUpdate before":    {"wrong-type", annotate(strategyKey, "OTA"), []string{`is "OTA"`, "to OnDelete"}},
		"OnDelete, by which a wrong maximum comes into force":       {"wrong-type", update(onDelete), []string{`max-unavailable is "abc"`}},
		"a strategy by which a wrong maximum comes into force":      {"ota", annotate(strategyKey, "AdvancedRollingUpdate"), []string{`max-unavailable is "abc"`}},
		"a new image for one whose prepull was wrong before":        {"wrong-prepull", image, nil},
		"another wrong prepull in place of a wrong one":             {"wrong-prepull", annotate(api.PrepullAnnotation, "no"), []string{`image-prepull is "no"`}},
		"a strategy with which prepull is as wrong as before":       {"wrong-prepull", without(api.PrepullTimeoutAnnotation, annotate(strategyKey, "auto")), nil},
		"a strategy by which a wrong timeout comes into force":      {"wrong-prepull", annotate(strategyKey, "auto"), []string{`image-prepull-timeout is "0"`}},
		"opting in without OnDelete":                                {"plain", annotate(strategyKey, "OTA"), []string{"to OnDelete"}},
		"opting in with the older key":                              {"plain", annotate(oldStrategyKey, "OTA"), []string{oldStrategyKey, "to OnDelete"}},
		"a wrong maximum for one that did not opt in, so no matter": {"plain", annotate(api.MaxUnavailableAnnotation, "abc"), nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			sets := env.admin.AppsV1().DaemonSets(namespace)
			var err error
			for range 10 { // the DaemonSet controller writes its status meanwhile
				ds, getErr := sets.Get(t.Context(), tt.name, metav1.GetOptions{})
				if getErr != nil {
					t.Fatal(getErr)
				}
				tt.change(ds)
				_, err = sets.Update(t.Context(), ds, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
				if refusal(err) != "" || err == nil {
					break
				}
			}
			expectRefusal(t, err, tt.want...)
		})
	}
}

func TestTheStatusOfAWrongOneCanBeWritten(t *testing.T) {
	sets := env.admin.AppsV1().DaemonSets(namespace)
	for _, name := range []string{"wrong-strategy", "wrong-maximum", "wrong-type"} {
		patch := `{"status":{"conditions":[{"type":"Example","status":"True","reason":"Test"}]}}`
		if _, err := sets.Patch(t.Context(), name, "application/strategic-merge-patch+json", []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The apiserver compares the expressions with the DaemonSet's schema in the
// background. A slip there would let requests pass, as every failure does.
func TestTheExpressionsFitTheSchema(t *testing.T) {
	for _, name := range []string{policyName, keysPolicyName, offlinePolicy} {
		t.Run(name, func(t *testing.T) {
			poll.Eventually(t, "the apiserver has checked the policy", func() bool {
				policy, err := env.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), name, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				checked := policy.Status.TypeChecking
				if checked == nil {
					return false
				}
				for _, w := range checked.ExpressionWarnings {
					t.Errorf("%s: %s", w.FieldRef, w.Warning)
				}
				return true
			})
		})
	}
}
