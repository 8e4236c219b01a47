package admission

import (
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/api"
)

const (
	strategyKey    = "apps.openyurt.io/update-strategy"
	oldStrategyKey = "apps.openyurt.io/upgrade-strategy"
)

// refusal returns the policy's words, or "" when err is none of its refusals.
func refusal(err error) string { return refusalBy(policyName, err) }

// refusalBy is refusal for another policy.
func refusalBy(policy string, err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !strings.Contains(err.Error(), policy) {
		return ""
	}
	_, words, _ := strings.Cut(err.Error(), "denied request: ")
	return words
}

// expectRefusal checks err for words; without any, the request must have passed.
func expectRefusal(t *testing.T, err error, words ...string) {
	t.Helper()
	if len(words) == 0 {
		if err != nil {
			t.Errorf("refused: %v", err)
		}
		return
	}
	if refusal(err) == "" {
		t.Fatalf("got %v, want a refusal by the policy", err)
	}
	for _, w := range words {
		if !strings.Contains(refusal(err), w) {
			t.Errorf("got %q, want %q in it", refusal(err), w)
		}
	}
}

func TestStrategies(t *testing.T) {
	const other = "apps.example.com/x"
	tests := map[string]struct {
		update      appsv1.DaemonSetUpdateStrategyType
		annotations map[string]string
		want        []string // none: it is accepted
	}{
		"no annotation at all":                         {rolling, nil, nil},
		"annotations of others":                        {rolling, map[string]string{other: "x"}, nil},
		"options without a strategy are none of ours":  {rolling, map[string]string{api.MaxUnavailableAnnotation: "abc"}, nil},
		"options are not read with OTA":                {onDelete, map[string]string{strategyKey: "OTA", api.MaxUnavailableAnnotation: "abc", api.PrepullTimeoutAnnotation: "abc"}, nil},
		"but for images first":                         {onDelete, map[string]string{strategyKey: "OTA", api.PrepullAnnotation: "yes"}, []string{`image-prepull is "yes"`, "true or false"}},
		"images first, with OTA":                       {onDelete, map[string]string{strategyKey: "OTA", api.PrepullAnnotation: " True "}, nil},
		"what owners may do, with OTA":                 {onDelete, map[string]string{strategyKey: "OTA", api.MaxHoldAnnotation: "1d"}, []string{`max-hold is "1d"`, "36h"}},
		"what owners may do without a strategy":        {rolling, map[string]string{api.OwnerRollbackAnnotation: "no"}, nil},
		"images first without a strategy":              {rolling, map[string]string{api.PrepullAnnotation: "yes"}, nil},
		"OTA":                                          {onDelete, map[string]string{strategyKey: "OTA"}, nil},
		"ota in lower case, with blanks":               {onDelete, map[string]string{strategyKey: " ota\n"}, nil},
		"AdvancedRollingUpdate":                        {onDelete, map[string]string{strategyKey: "AdvancedRollingUpdate"}, nil},
		"advancedRollingUPDATE":                        {onDelete, map[string]string{strategyKey: "advancedRollingUPDATE"}, nil},
		"auto is the older name":                       {onDelete, map[string]string{strategyKey: "auto"}, nil},
		"Auto under the older key":                     {onDelete, map[string]string{oldStrategyKey: "Auto"}, nil},
		"the newer key wins over a wrong older one":    {onDelete, map[string]string{strategyKey: "OTA", oldStrategyKey: "x"}, nil},
		"a wrong newer key is wrong":                   {onDelete, map[string]string{strategyKey: "x", oldStrategyKey: "OTA"}, []string{strategyKey + ` is "x"`, "OTA or AdvancedRollingUpdate"}},
		"a wrong older key is named":                   {onDelete, map[string]string{oldStrategyKey: "x"}, []string{oldStrategyKey + ` is "x"`}},
		"an empty value":                               {onDelete, map[string]string{strategyKey: ""}, []string{`is ""`}},
		"OTA with RollingUpdate":                       {rolling, map[string]string{strategyKey: "OTA"}, []string{`is "OTA"`, "type is RollingUpdate", "to OnDelete"}},
		"AdvancedRollingUpdate without a type":         {"", map[string]string{strategyKey: "auto"}, []string{"type is RollingUpdate", "to OnDelete"}},
		"a wrong value with RollingUpdate names both":  {rolling, map[string]string{strategyKey: "x"}, []string{"OTA or AdvancedRollingUpdate", "OnDelete"}},
		"long words are cut":                           {onDelete, map[string]string{strategyKey: strings.Repeat("x", 5000)}, []string{`xxx..."`}},
		"words of several lines do not hide the words": {onDelete, map[string]string{strategyKey: "x\ny"}, []string{strategyKey + ` is "x y"`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			expectRefusal(t, create(t.Context(), daemonSet(tt.update, tt.annotations)), tt.want...)
		})
	}
}

// rolloutValues are values for each option; the second field is which of them
// are right, and the parser is asked whether that is so.
func rolloutValues() map[string]map[string]bool {
	const padded = " FALSE "
	truths := map[string]bool{
		"true": true, "false": true, "True": true, padded: true,
		"": false, "yes": false, "1": false, "t": false, "truefalse": false,
	}
	long := strings.Repeat("a", 63)
	amounts := map[string]bool{
		"0": true, "1": true, "007": true, "999999999": true, "0%": true, "5%": true, "05%": true, "100%": true, " 10% ": true, "\t3\n": true,
		"": false, " ": false, "-1": false, "+1": false, "abc": false, "101%": false, "1000%": false, "10 %": false, "%": false, "1.5": false,
		"1e3": false, "0x1": false, "10%%": false, "9999999999": false, "1 2": false, "٣": false,
	}
	return map[string]map[string]bool{
		api.MaxUnavailableAnnotation: amounts,
		api.PartitionAnnotation:      amounts,
		api.PausedAnnotation:         truths,
		api.PrepullAnnotation:        truths,
		api.PrepullTimeoutAnnotation: {
			"30m": true, "12h": true, "1h30m": true, "1h0m0s": true, "1.5h": true, "0.5m": true, "90s": true, "99999s": true, "1s": true, "720h": true,
			"719h59m60s": true, " 30m\n": true, "30m30m": true, "0h1s": true,
			"": false, " ": false, "0": false, "0s": false, "0.999s": false, "30": false, "m": false, "-30m": false, "+30m": false, "30 m": false, "1h 30m": false,
			"720.001h": false, "721h": false, "720h1s": false, "99999h": false, "100000s": false, "9999999999999h": false, "99999h99999h99999h": false,
			"1d": false, "30M": false, "500ms": false, "1000ms": false, ".5h": false, "1.h": false, "1.0000h": false, "1m1m1m1m": false, "forever": false, "1h\n30m": false,
		},
		api.MaxHoldAnnotation: {
			"36h": true, "0s": true, "8760h": true, " 90m\n": true, "1.5h": true, "1h30m": true, "8759h59m60s": true,
			"": false, " ": false, "0": false, "8760h1s": false, "8761h": false, "8760.001h": false, "-1h": false, "+1h": false, "1d": false, "500ms": false,
			"forever": false, "99999h99999h99999h": false, "1h\n30m": false,
		},
		api.OwnerRollbackAnnotation: {
			"Allowed": true, "denied": true, " ALLOWED\n": true, "": false, " ": false, "allow": false, "true": false, "Allowed Denied": false,
		},
		api.OfflineUpgradeAnnotation: {
			"InPlace": true, "queue": true, " INPLACE\n": true, "": false, " ": false, "true": false, "in place": false,
		},
		api.RollbackHistoryAnnotation: {
			"0": true, "1": true, "9": true, "10": true, " 3\n": true, "007": true, "00000000000000000000010": true,
			"": false, " ": false, "11": false, "-1": false, "+1": false, "-0": false, "1.0": false, "a": false, "99999999999999999999": false, "1 0": false, "1_0": false, "٣": false,
		},
		api.ContinueAnnotation: {
			"7c9d8f6b5d": true, " 7c9d8f6b5d\n": true, "a": true, long: true,
			"": false, " ": false, "true": false, "No": false, long + "a": false, "a b": false, "-a": false, "web/7c9d": false,
		},
		api.NodeSelectorAnnotation: {
			"zone=test": true, "zone==test": true, "zone!=test": true, " zone = test ": true, "zone=": true, "zone": true, "!zone": true, "! zone": true,
			"zone=test,disk!=hdd": true, "zone = test , !disk": true, "zone=,disk": true, "example.com/zone=a": true, "a.b-c.example/Z_one.x=A_b.c-9": true,
			"zone in (a)": true, "zone in (a,b)": true, "zone in ( a , b )": true, "zone in ()": true, "zone in (,)": true, "zone in (a,)": true,
			"zone notin (a,,b)": true, "zone in(a)": true, "in in (in,notin)": true, "notin": true, "in=notin": true, "zone>5": true, "zone < 12,disk": true,
			"zone\tin\n(a)": true, long + "=" + long: true, strings.Repeat("a", 253) + "/a": true,
			"": false, " ": false, ",": false, "zone=test,": false, ",zone": false, "zone=a b": false, "zone test": false, "=a": false, "zone=>a": false,
			"zone===a": false, "zone<=5": false, "zone>a": false, "zone>": false, "zone>-5": false, "!zone=a": false, "!!zone": false, "!": false, "!zone in (a)": false,
			"zone in a": false, "zone in (a": false, "zone in a)": false, "zone in": false, "zonein (a)": false, "zone IN (a)": false, "zone in (a b)": false,
			"zone in (a) disk": false, "zone=-a": false, "zone=a-": false, "-zone=a": false, "/zone=a": false, "Example.com/zone=a": false, "a//b": false, "a/b/c": false,
			"zone=a/b": false, "zone=(a)": false, "zone={a}": false, long + "a=b": false, "a=" + long + "a": false, strings.Repeat("a", 254) + "/a": false,
			"zone in (" + long + "a)": false, "zönë=a": false, "zone=test;disk": false, "zone: test": false, "zone=a,,disk=b": false,
		},
	}
}

// problemOf is what the controller has to object to in the annotations of a rollout.
func problemOf(annotations map[string]string) error {
	if _, err := rollout.ParseOptions(annotations); err != nil {
		return err
	}
	_, err := api.ParsePolicy(annotations, false)
	return err
}

// The policy and the controller must not disagree: what one takes and the other
// refuses is either a DaemonSet that nobody can save, or one that is saved and
// stands still.
func TestPolicyAndControllerAgree(t *testing.T) {
	for key, values := range rolloutValues() {
		for value, want := range values {
			t.Run(key+"="+value, func(t *testing.T) {
				annotations := map[string]string{strategyKey: "AdvancedRollingUpdate", key: value}
				problem := problemOf(annotations)
				if (problem == nil) != want {
					t.Errorf("the controller says %v, want it to accept: %t", problem, want)
				}
				err := create(t.Context(), daemonSet(onDelete, annotations))
				if want {
					expectRefusal(t, err)
				} else {
					expectRefusal(t, err, "annotation "+key+" is \"", "write ")
				}
			})
		}
	}
}

// When only one value is wrong, both say the same about it.
func TestTheWordsAreTheControllers(t *testing.T) {
	for key, value := range map[string]string{
		api.MaxUnavailableAnnotation:  "abc",
		api.PartitionAnnotation:       "-1",
		api.PausedAnnotation:          "maybe",
		api.PrepullAnnotation:         "maybe",
		api.PrepullTimeoutAnnotation:  "0",
		api.ContinueAnnotation:        "true",
		api.NodeSelectorAnnotation:    "",
		api.MaxHoldAnnotation:         "1d",
		api.OwnerRollbackAnnotation:   "yes",
		api.OfflineUpgradeAnnotation:  "true",
		api.RollbackHistoryAnnotation: "11",
	} {
		annotations := map[string]string{strategyKey: "AdvancedRollingUpdate", key: value}
		problem := problemOf(annotations)
		if problem == nil {
			t.Fatalf("the controller accepts %s=%q", key, value)
		}
		if got := refusal(create(t.Context(), daemonSet(onDelete, annotations))); got != problem.Error() {
			t.Errorf("the policy says     %q\nthe controller says %q", got, problem)
		}
	}
}
