package rollout

import (
	"strings"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/ota/upgrade"
)

func TestParseOptions(t *testing.T) {
	tests := map[string]struct {
		annotations map[string]string
		want        string // of MaxUnavailable and Partition
	}{
		"none":                              {nil, "10% 0"},
		"a number":                          {map[string]string{MaxUnavailableAnnotation: "3"}, "3 0"},
		"a percentage":                      {map[string]string{MaxUnavailableAnnotation: "25%"}, "25% 0"},
		"all":                               {map[string]string{MaxUnavailableAnnotation: "100%"}, "100% 0"},
		"space around it does not matter":   {map[string]string{MaxUnavailableAnnotation: " 3\n"}, "3 0"},
		"zero is the default":               {map[string]string{MaxUnavailableAnnotation: "0"}, "10% 0"},
		"zero percent is the default":       {map[string]string{MaxUnavailableAnnotation: "0%"}, "10% 0"},
		"nine digits":                       {map[string]string{MaxUnavailableAnnotation: "999999999"}, "999999999 0"},
		"a partition":                       {map[string]string{PartitionAnnotation: "5"}, "10% 5"},
		"a partition of nothing is nothing": {map[string]string{PartitionAnnotation: "0"}, "10% 0"},
		"a partition in percent":            {map[string]string{PartitionAnnotation: "50%"}, "10% 50%"},
		"others are none of our business":   {map[string]string{"a": "-1"}, "10% 0"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o, err := ParseOptions(tt.annotations)
			if err != nil {
				t.Fatal(err)
			}
			if got := o.MaxUnavailable.String() + " " + o.Partition.String(); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if o.Paused || o.NodeSelector != nil || o.Continue != "" || o.Prepull || o.PrepullTimeout != 30*time.Minute {
				t.Errorf("got %v", o)
			}
		})
	}
}

func TestParseOptionsThatAreNotAmounts(t *testing.T) {
	for value, paused := range map[string]bool{"true": true, "True": true, "TRUE\n": true, "false": false, "False": false} {
		o, err := ParseOptions(map[string]string{PausedAnnotation: value})
		if err != nil || o.Paused != paused {
			t.Errorf("%q: got %v, %v", value, o.Paused, err)
		}
	}
	for value, prepull := range map[string]bool{"true": true, "True": true, "false": false} {
		annotations := map[string]string{upgrade.PrepullAnnotation: " " + value + "\n", MaxUnavailableAnnotation: "3"}
		o, err := ParseOptions(annotations)
		if err != nil || o.Prepull != prepull {
			t.Errorf("%q: got %v, %v", value, o.Prepull, err)
		}
		annotations[MaxUnavailableAnnotation] = "none of its business"
		if got, err := ParseOTA(annotations); err != nil || got.Prepull != prepull {
			t.Errorf("%q alone: got %v, %v", value, got, err)
		}
	}
	for value, want := range map[string]time.Duration{
		"30m": 30 * time.Minute, "12h": 12 * time.Hour, "1h30m": 90 * time.Minute, "1.5h": 90 * time.Minute, "1s": time.Second, "720h": 720 * time.Hour, "1h0m0s": time.Hour,
	} {
		o, err := ParseOptions(map[string]string{PrepullTimeoutAnnotation: value + "\n"})
		if err != nil || o.PrepullTimeout != want {
			t.Errorf("%q: got %v, %v", value, o.PrepullTimeout, err)
		}
	}
	o, err := ParseOptions(map[string]string{NodeSelectorAnnotation: "zone=a,disk!=hdd", ContinueAnnotation: "7d4f8b9c6"})
	if err != nil || o.NodeSelector.String() != "disk!=hdd,zone=a" || o.Continue != "7d4f8b9c6" {
		t.Errorf("got %v, %v", o, err)
	}
}

func TestPolicyIsThatOfTheStrategy(t *testing.T) {
	rollout, err := ParseOptions(nil)
	ota, otaErr := ParseOTA(nil)
	if err != nil || otaErr != nil || rollout.Policy != upgrade.DefaultPolicy() || !ota.Policy.Rollback || ota.Policy.MaxHold != upgrade.DefaultMaxHold {
		t.Errorf("without annotations: got %+v, %v, and with OTA %+v, %v", rollout.Policy, err, ota.Policy, otaErr)
	}
	annotations := map[string]string{
		upgrade.MaxHoldAnnotation: "2h", upgrade.OwnerRollbackAnnotation: "Denied", upgrade.RollbackHistoryAnnotation: "3",
	}
	want := upgrade.Policy{MaxHold: 2 * time.Hour, History: 3}
	for name, parse := range map[string]func(map[string]string) (Options, error){"a rollout": ParseOptions, "OTA": ParseOTA} {
		if o, err := parse(annotations); err != nil || o.Policy != want {
			t.Errorf("%s: got %+v, %v", name, o.Policy, err)
		}
	}
	annotations[upgrade.MaxHoldAnnotation] = "often"
	if _, err := ParseOTA(annotations); err == nil || !strings.Contains(err.Error(), upgrade.MaxHoldAnnotation) {
		t.Errorf("OTA: got %v", err)
	}
}

func TestWrongOptionsAreQuotedWithWhatToWrite(t *testing.T) {
	tests := []struct{ key, value, hint string }{
		{MaxUnavailableAnnotation, "-1", "a number such as 3"},
		{MaxUnavailableAnnotation, "abc", "a percentage such as 10%"},
		{MaxUnavailableAnnotation, "101%", "0% to 100%"},
		{MaxUnavailableAnnotation, "", "a number"},
		{MaxUnavailableAnnotation, "1.5", "a number"},
		{MaxUnavailableAnnotation, "10 %", "a number"},
		{MaxUnavailableAnnotation, "+3", "a number"},
		{MaxUnavailableAnnotation, "9999999999", "a number"},
		{PartitionAnnotation, "-1", "a number"},
		{PartitionAnnotation, "x%", "a number"},
		{PausedAnnotation, "yes", "true or false"},
		{PausedAnnotation, "", "true or false"},
		{NodeSelectorAnnotation, "", "zone=test"},
		{NodeSelectorAnnotation, "a in b", "zone=test"},
		{NodeSelectorAnnotation, "a=b c", "zone=test"},
		{ContinueAnnotation, "true", "the revision"},
		{ContinueAnnotation, "", "the revision"},
		{ContinueAnnotation, "no such thing", "the revision"},
		{upgrade.PrepullAnnotation, "yes", "true or false"},
		{upgrade.PrepullAnnotation, "", "true or false"},
		{PrepullTimeoutAnnotation, "", "a duration such as 30m"},
		{PrepullTimeoutAnnotation, "30", "a duration such as 30m"},
		{PrepullTimeoutAnnotation, "0", "from 1s to 720h"},
		{PrepullTimeoutAnnotation, "0s", "from 1s to 720h"},
		{PrepullTimeoutAnnotation, "-30m", "from 1s to 720h"},
		{PrepullTimeoutAnnotation, "721h", "from 1s to 720h"},
		{PrepullTimeoutAnnotation, "30 m", "a duration"},
		{PrepullTimeoutAnnotation, "1d", "a duration"},
		{PrepullTimeoutAnnotation, "1000ms", "a duration"},
		{PrepullTimeoutAnnotation, "9999999999999h", "a duration"},
		{upgrade.MaxHoldAnnotation, "1d", "a duration such as 36h, at most 8760h, or 0s"},
		{upgrade.OwnerRollbackAnnotation, "true", "Allowed or Denied"},
		{upgrade.RollbackHistoryAnnotation, "11", "from 0 to 10"},
	}
	for _, tt := range tests {
		_, err := ParseOptions(map[string]string{tt.key: tt.value})
		if err == nil {
			t.Errorf("%s %q was taken", tt.key, tt.value)
			continue
		}
		for _, words := range []string{tt.key, `"` + tt.value + `"`, tt.hint} {
			if !strings.Contains(err.Error(), words) {
				t.Errorf("got %q, want %q in it", err, words)
			}
		}
	}
}

func TestEveryWrongOptionIsNamedAndFiveFitAnEvent(t *testing.T) {
	long := strings.Repeat("x y", 500)
	keys := []string{
		MaxUnavailableAnnotation, PartitionAnnotation, PausedAnnotation, NodeSelectorAnnotation, ContinueAnnotation,
		upgrade.PrepullAnnotation, PrepullTimeoutAnnotation,
	}
	annotations := map[string]string{}
	for _, key := range keys {
		annotations[key] = long
	}
	_, err := ParseOptions(annotations)
	if err == nil {
		t.Fatal("no error")
	}
	if _, err := ParseOTA(annotations); err == nil || !strings.Contains(err.Error(), upgrade.PrepullAnnotation) {
		t.Errorf("prepull alone: got %v", err)
	}
	for _, key := range keys {
		if !strings.Contains(err.Error(), key) {
			t.Errorf("%s is not named", key)
		}
	}
	delete(annotations, upgrade.PrepullAnnotation)
	delete(annotations, PrepullTimeoutAnnotation)
	if _, err = ParseOptions(annotations); len(err.Error()) > 1024 || strings.Contains(err.Error(), "\n") {
		t.Errorf("%d bytes: %v", len(err.Error()), err)
	}
}

func TestAmountOf(t *testing.T) {
	for _, tt := range []struct {
		amount Amount
		n      int
		want   int
	}{
		{Amount{10, true}, 0, 0}, {Amount{10, true}, 1, 1}, {Amount{10, true}, 10, 1}, {Amount{10, true}, 11, 2},
		{Amount{50, true}, 2, 1}, {Amount{100, true}, 7, 7}, {Amount{0, true}, 7, 0}, {Amount{3, false}, 1, 3},
	} {
		if got := tt.amount.Of(tt.n); got != tt.want {
			t.Errorf("%v of %d: got %d, want %d", tt.amount, tt.n, got, tt.want)
		}
	}
}
