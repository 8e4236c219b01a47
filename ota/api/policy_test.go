package api

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The admission policy has rules of its own for the annotations, and must not differ.
func TestTheAdmissionPolicyHasTheSameRules(t *testing.T) {
	b, err := os.ReadFile(filepath.FromSlash("../../deploy/admission/policy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	policy := string(b)
	for _, want := range []string{
		fmt.Sprintf("expression: \"'%s'\"", durationPattern),
		fmt.Sprintf("duration(variables.annotations['%s'].trim()) <= duration('%.0fh')", MaxHoldAnnotation, maxMaxHold.Hours()),
		fmt.Sprintf("variables.annotations['%s'].trim().lowerAscii() in ['%s', '%s']",
			OwnerRollbackAnnotation, strings.ToLower(RollbackAllowed), strings.ToLower(RollbackDenied)),
	} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy lacks %s", want)
		}
	}
	_, rest, _ := strings.Cut(policy, "variables.annotations['"+RollbackHistoryAnnotation+"'].trim().matches('")
	pattern, _, _ := strings.Cut(rest, "'")
	history := regexp.MustCompile(pattern)
	for n := -1; n < 100; n++ {
		value := fmt.Sprint(n)
		_, err := ParsePolicy(map[string]string{RollbackHistoryAnnotation: value}, true)
		if history.MatchString(value) != (err == nil) {
			t.Errorf("%s: the policy's pattern is %q, and the controller returns %v", value, pattern, err)
		}
	}
}

func TestParsePolicy(t *testing.T) {
	tests := map[string]struct {
		annotations map[string]string
		ota         bool
		want        Policy
		problem     string // a part of the error
	}{
		"nothing, with a rollout": {nil, false, Policy{DefaultMaxHold, false, 1, false, 0}, ""},
		"nothing, with OTA":       {nil, true, Policy{DefaultMaxHold, true, 1, false, 0}, ""},
		"rollbacks in a rollout":  {map[string]string{OwnerRollbackAnnotation: " allowed\n"}, false, Policy{DefaultMaxHold, true, 1, false, 0}, ""},
		"no rollbacks with OTA":   {map[string]string{OwnerRollbackAnnotation: "Denied"}, true, Policy{DefaultMaxHold, false, 1, false, 0}, ""},
		"no holds":                {map[string]string{MaxHoldAnnotation: "0s"}, false, Policy{0, false, 1, false, 0}, ""},
		"in place, in a rollout":  {map[string]string{OfflineUpgradeAnnotation: " inplace\n"}, false, Policy{DefaultMaxHold, false, 1, true, 0}, ""},
		"in place, with OTA":      {map[string]string{OfflineUpgradeAnnotation: "InPlace"}, true, Policy{DefaultMaxHold, true, 1, true, 0}, ""},
		"queued":                  {map[string]string{OfflineUpgradeAnnotation: "Queue"}, true, Policy{DefaultMaxHold, true, 1, false, 0}, ""},
		"all":                     {map[string]string{MaxHoldAnnotation: "1.5h", RollbackHistoryAnnotation: "010"}, true, Policy{90 * time.Minute, true, 10, false, 0}, ""},
		"a hold for ever":         {map[string]string{MaxHoldAnnotation: "8760h1s"}, true, Policy{}, "max-hold is \"8760h1s\": write a duration"},
		"a hold below nothing":    {map[string]string{MaxHoldAnnotation: "-1h"}, true, Policy{}, "write a duration"},
		"neither yes nor no":      {map[string]string{OwnerRollbackAnnotation: "yes"}, true, Policy{}, "write Allowed or Denied"},
		"some word":               {map[string]string{OfflineUpgradeAnnotation: "yes"}, true, Policy{}, "write InPlace or Queue"},
		"too much history":        {map[string]string{RollbackHistoryAnnotation: "11"}, true, Policy{}, "write a number from 0 to 10"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParsePolicy(tt.annotations, tt.ota)
			if got != tt.want || (err == nil) != (tt.problem == "") || err != nil && !strings.Contains(err.Error(), tt.problem) {
				t.Errorf("got %+v and %v, want %+v and %q", got, err, tt.want, tt.problem)
			}
		})
	}
}

func TestPolicySurvivesThePod(t *testing.T) {
	// What older and newer versions read of each other.
	for policy, onTheWire := range map[Policy]string{
		DefaultPolicy():                                      "",
		{MaxHold: time.Hour, Rollback: true}:                 `{"maxHold":3600000000000,"rollback":true,"history":0}`,
		{MaxHold: DefaultMaxHold, History: 1, InPlace: true}: `{"maxHold":86400000000000,"history":1,"inPlace":true}`,
	} {
		if got := policy.Encode(); got != onTheWire {
			t.Errorf("got %s, want %s", got, onTheWire)
		}
		got, err := PolicyOf(podWith(map[string]string{PolicyAnnotation: policy.EncodeWith(map[string]string{"old": ""})}))
		if err != nil || got != policy {
			t.Errorf("got %+v, %v, want %+v", got, err, policy)
		}
	}
}
