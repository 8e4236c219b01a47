package alerts

import (
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

var folder = filepath.Join("..", "..", "deploy", "monitoring")

// A Prometheus takes nothing that is experimental unless configured to.
var promQL = parser.NewParser(parser.Options{})

// rulesOf reads a file of alerts as its head says that people with a plain Prometheus
// should: what comes after "spec:".
func rulesOf(t *testing.T, file string) []rulefmt.Rule {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, file))
	if err != nil {
		t.Fatal(err)
	}
	_, spec, found := strings.Cut(string(text), "\nspec:\n")
	if !found {
		t.Fatalf("%s has no line spec:", file)
	}
	groups, errs := rulefmt.Parse([]byte(spec), false, model.UTF8Validation, promQL, slog.Default())
	for _, err := range errs {
		t.Error(file, err)
	}
	var out []rulefmt.Rule
	for _, group := range groups.Groups {
		out = append(out, group.Rules...)
	}
	return out
}

func allRules(t *testing.T) []rulefmt.Rule {
	t.Helper()
	return append(rulesOf(t, "hub-rules.yaml"), rulesOf(t, "controller-rules.yaml")...)
}

func parse(t *testing.T, expr string) parser.Expr {
	t.Helper()
	parsed, err := promQL.ParseExpr(expr)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return parsed
}

var labelInTemplate = regexp.MustCompile(`\$labels\.([a-zA-Z_]+)`)

func TestAlertsAskForWhatThereIsAndSayWhatToDo(t *testing.T) {
	all := everything(t)
	seen := map[string]bool{}
	for _, rule := range allRules(t) {
		t.Run(rule.Alert, func(t *testing.T) {
			if seen[rule.Alert] {
				t.Error("there are two of this name")
			}
			seen[rule.Alert] = true
			expr := parse(t, rule.Expr)
			for _, wrong := range all.unknownIn(expr) {
				t.Error(wrong)
			}
			for _, key := range []string{"summary", "description", "action"} {
				if rule.Annotations[key] == "" {
					t.Errorf("annotation %s is missing", key)
				}
			}
			has := all.labelsOf(expr)
			for key, text := range rule.Annotations {
				for _, m := range labelInTemplate.FindAllStringSubmatch(text, -1) {
					if !has[m[1]] {
						t.Errorf("%s names label %s, which the alert has not", key, m[1])
					}
				}
			}
			switch rule.Labels["severity"] {
			case "critical", "warning", "info":
			default:
				t.Errorf("severity is %q", rule.Labels["severity"])
			}
			if time.Duration(rule.For) > 0 && time.Duration(rule.For) < time.Minute {
				t.Errorf("for %v is shorter than most scrapes", rule.For)
			}
		})
	}
}

// Each field is one that the Prometheus operator knows.
func TestObjectsOfTheOperatorAreWellFormed(t *testing.T) {
	for file, object := range map[string]any{
		"podmonitor.yaml":       &monitoringv1.PodMonitor{},
		"hub-rules.yaml":        &monitoringv1.PrometheusRule{},
		"controller-rules.yaml": &monitoringv1.PrometheusRule{},
	} {
		text, err := os.ReadFile(filepath.Join(folder, file))
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(text, object); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
