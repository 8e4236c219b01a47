package rollout

import (
	"strings"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/ota/api"
)

func TestParseOptions(t *testing.T) {
	tests := map[string]struct {
		annotations map[string]string
		want        string // of MaxUnavailable and Partition
	}{
		"none":                              {nil, "10% 0"},
		"a number":                          {map[string]string{api.MaxUnavailableAnnotation: "3"}, "3 0"},
		"a percentage":                      {map[string]string{api.MaxUnavailableAnnotation: "25%"}, "25% 0"},
		"all":                               {map[string]string{api.MaxUnavailableAnnotation: "100%"}, "100% 0"},
		"space around it does not matter":   {map[string]string{api.MaxUnavailableAnnotation: " 3\n"}, "3 0"},
		"zero is the default":               {map[string]string{api.MaxUnavailableAnnotation: "0"}, "10% 0"},
		"zero percent is the default":       {map[string]string{api.MaxUnavailableAnnotation: "0%"}, "10% 0"},
		"nine digits":                       {map[string]string{api.MaxUnavailableAnnotation: "999999999"}, "999999999 0"},
		"a partition":                       {map[string]string{api.PartitionAnnotation: "5"}, "10% 5"},
		"a partition of nothing is nothing": {map[string]string{api.PartitionAnnotation: "0"}, "10% 0"},
		"a partition in percent":            {map[string]string{api.PartitionAnnotation: "50%"}, "10% 50%"},
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
		o, err := ParseOptions(map[string]string{api.PausedAnnotation: value})
		if err != nil || o.Paused != paused {
			t.Errorf("%q: got %v, %v", value, o.Paused, err)
		}
	}
	for value, prepull := range map[string]bool{"true": true, "True": true, "false": false} {
		annotations := map[string]string{api.PrepullAnnotation: " " + value + "\n", api.MaxUnavailableAnnotation: "3"}
		o, err := ParseOptions(annotations)
		if err != nil || o.Prepull != prepull {
			t.Errorf("%q: got %v, %v", value, o.Prepull, err)
		}
		annotations[api.MaxUnavailableAnnotation] = "none of its business"
		if got, err := ParseOTA(annotations); err != nil || got.Prepull != prepull {
			t.Errorf("%q alone: got %v, %v", value, got, err)
		}
	}
	for value, want := range map[string]time.Duration{
		"30m": 30 * time.Minute, "12h": 12 * time.Hour, "1h30m": 90 * time.Minute, "1.5h": 90 * time.Minute, "1s": time.Second, "720h": 720 * time.Hour, "1h0m0s": time.Hour,
	} {
		o, err := ParseOptions(map[string]string{api.PrepullTimeoutAnnotation: value + "\n"})
		if err != nil || o.PrepullTimeout != want {
			t.Errorf("%q: got %v, %v", value, o.PrepullTimeout, err)
		}
	}
	o, err := ParseOptions(map[string]string{api.NodeSelectorAnnotation: "zone=a,disk!=hdd", api.ContinueAnnotation: "7d4f8b9c6"})
	if err != nil || o.NodeSelector.String() != "disk!=hdd,zone=a" || o.Continue != "7d4f8b9c6" {
		t.Errorf("got %v, %v", o, err)
	}
}

func TestPolicyIsThatOfTheStrategy(t *testing.T) {
	rollout, err := ParseOptions(nil)
	ota, otaErr := ParseOTA(nil)
	if err != nil || otaErr != nil || rollout.Policy != api.DefaultPolicy() || !ota.Policy.Rollback || ota.Policy.MaxHold != api.DefaultMaxHold {
		t.Errorf("without annotations: got %+v, %v, and with OTA %+v, %v", rollout.Policy, err, ota.Policy, otaErr)
	}
	annotations := map[string]string{
		api.MaxHoldAnnotation: "2h", api.OwnerRollbackAnnotation: "Denied", api.RollbackHistoryAnnotation: "3",
		api.OfflineUpgradeAnnotation: "InPlace",
	}
	want := api.Policy{MaxHold: 2 * time.Hour, History: 3, InPlace: true}
	for name, parse := range map[string]func(map[string]string) (Options, error){"a rollout": ParseOptions, "OTA": ParseOTA} {
		if o, err := parse(annotations); err != nil || o.Policy != want {
			t.Errorf("%s: got %+v, %v", name, o.Policy, err)
		}
	}
	annotations[api.MaxHoldAnnotation] = "often"
	if _, err := ParseOTA(annotations); err == nil || !strings.Contains(err.Error(), api.MaxHoldAnnotation) {
		t.Errorf("OTA: got %v", err)
	}
}

func TestWrongOptionsAreQuotedWithWhatToWrite(t *testing.T) {
	tests := []struct{ key, value, hint string }{
		{api.MaxUnavailableAnnotation, "-1", "a number such as 3"},
		{api.MaxUnavailableAnnotation, "abc", "a percentage such as 10%"},
		{api.MaxUnavailableAnnotation, "101%", "0% to 100%"},
		{api.MaxUnavailableAnnotation, "", "a number"},
		{api.MaxUnavailableAnnotation, "1.5", "a number"},
		{api.MaxUnavailableAnnotation, "10 %", "a number"},
		{api.MaxUnavailableAnnotation, "+3", "a number"},
		{api.MaxUnavailableAnnotation, "9999999999", "a number"},
		{api.PartitionAnnotation, "-1", "a number"},
		{api.PartitionAnnotation, "x%", "a number"},
		{api.PausedAnnotation, "yes", "true or false"},
		{api.PausedAnnotation, "", "true or false"},
		{api.NodeSelectorAnnotation, "", "zone=test"},
		{api.NodeSelectorAnnotation, "a in b", "zone=test"},
		{api.NodeSelectorAnnotation, "a=b c", "zone=test"},
		{api.ContinueAnnotation, "true", "the revision"},
		{api.ContinueAnnotation, "", "the revision"},
		{api.ContinueAnnotation, "no such thing", "the revision"},
		{api.PrepullAnnotation, "yes", "true or false"},
		{api.PrepullAnnotation, "", "true or false"},
		{api.PrepullTimeoutAnnotation, "", "a duration such as 30m"},
		{api.PrepullTimeoutAnnotation, "30", "a duration such as 30m"},
		{api.PrepullTimeoutAnnotation, "0", "from 1s to 720h"},
		{api.PrepullTimeoutAnnotation, "0s", "from 1s to 720h"},
		{api.PrepullTimeoutAnnotation, "-30m", "from 1s to 720h"},
		{api.PrepullTimeoutAnnotation, "721h", "from 1s to 720h"},
		{api.PrepullTimeoutAnnotation, "30 m", "a duration"},
		{api.PrepullTimeoutAnnotation, "1d", "a duration"},
		{api.PrepullTimeoutAnnotation, "1000ms", "a duration"},
		{api.PrepullTimeoutAnnotation, "9999999999999h", "a duration"},
		{api.MaxHoldAnnotation, "1d", "a duration such as 36h, at most 8760h, or 0s"},
		{api.OwnerRollbackAnnotation, "true", "Allowed or Denied"},
		{api.RollbackHistoryAnnotation, "11", "from 0 to 10"},
		{api.OfflineUpgradeAnnotation, "yes", "InPlace or Queue"},
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
		api.MaxUnavailableAnnotation, api.PartitionAnnotation, api.PausedAnnotation, api.NodeSelectorAnnotation, api.ContinueAnnotation,
		api.PrepullAnnotation, api.PrepullTimeoutAnnotation,
	}
	annotations := map[string]string{}
	for _, key := range keys {
		annotations[key] = long
	}
	_, err := ParseOptions(annotations)
	if err == nil {
		t.Fatal("no error")
	}
	if _, err := ParseOTA(annotations); err == nil || !strings.Contains(err.Error(), api.PrepullAnnotation) {
		t.Errorf("prepull alone: got %v", err)
	}
	for _, key := range keys {
		if !strings.Contains(err.Error(), key) {
			t.Errorf("%s is not named", key)
		}
	}
	delete(annotations, api.PrepullAnnotation)
	delete(annotations, api.PrepullTimeoutAnnotation)
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
