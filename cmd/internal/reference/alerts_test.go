package reference

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/yaml"
)

func TestAlertsReference(t *testing.T) {
	for section, file := range map[string]string{"alerts of hubs": "hub-rules.yaml", "alerts of the controller": "controller-rules.yaml"} {
		alerts, err := alertsIn(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := Check("metrics.md", section, alerts); err != nil {
			t.Error(err)
		}
	}
}

// rules is as much of a PrometheusRule as is shown.
type rules struct {
	Spec struct {
		Groups []struct {
			Rules []alert `json:"rules"`
		} `json:"groups"`
	} `json:"spec"`
}

type alert struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// alertsIn returns a heading and the texts of each alert in a file of deploy/monitoring.
func alertsIn(file string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(filepath.Join(root, "deploy", "monitoring", file))
	if err != nil {
		return "", err
	}
	var r rules
	if err := yaml.Unmarshal(content, &r); err != nil {
		return "", fmt.Errorf("read %s: %w", file, err)
	}
	var out strings.Builder
	for _, g := range r.Spec.Groups {
		for _, a := range g.Rules {
			out.WriteString(a.text())
		}
	}
	return out.String(), nil
}

func (a alert) text() string {
	after := ""
	if a.For != "" {
		after = ", after " + a.For
	}
	return fmt.Sprintf("### %s\n\n**%s%s:** %s\n\n```\n%s\n```\n\n%s\n\n**What to do:** %s\n\n",
		a.Alert, a.Labels["severity"], after, withoutTemplates(a.Annotations["summary"]),
		strings.TrimSpace(a.Expr), withoutTemplates(a.Annotations["description"]), withoutTemplates(a.Annotations["action"]))
}

var (
	labelTemplate = regexp.MustCompile(`\{\{ *\$labels\.(\w+)(?: *\| *toLower)? *\}\}`)
	valueTemplate = regexp.MustCompile(`\{\{ *\$value[^}]*\}\}`)
)

// withoutTemplates has a label's name in capitals where an alert has its value, and N for
// the number.
func withoutTemplates(text string) string {
	text = labelTemplate.ReplaceAllStringFunc(text, func(s string) string {
		return strings.ToUpper(labelTemplate.FindStringSubmatch(s)[1])
	})
	return valueTemplate.ReplaceAllString(text, "N")
}
