package reference

import "testing"

func TestAlertsReference(t *testing.T) {
	for section, file := range map[string]string{"alerts of hubs": "hub-rules.yaml", "alerts of the controller": "controller-rules.yaml"} {
		alerts, err := Alerts(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := Check("metrics.md", section, alerts); err != nil {
			t.Error(err)
		}
	}
}
