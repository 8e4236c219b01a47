package alerts

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// dashboard is what Grafana reads, as far as it matters here.
type dashboard struct {
	UID    string  `json:"uid"`
	Panels []panel `json:"panels"`
	Vars   struct {
		List []struct {
			Name, Type string
			Definition string
		} `json:"list"`
	} `json:"templating"`
}

type panel struct {
	ID      int
	Type    string
	Title   string
	GridPos struct{ X, Y, W, H int }
	Targets []struct {
		Expr         string
		LegendFormat string
	}
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// filledIn replaces Grafana's variables by what they may stand for.
var filledIn = strings.NewReplacer("$__rate_interval", "5m", "$node", ".*", "$namespace", ".*", "$daemonset", ".*")

var legendLabel = regexp.MustCompile(`\{\{(\w+)\}\}`)

func TestTheDashboardAsksForWhatThereIs(t *testing.T) {
	all := everything(t)
	d := readDashboard(t)
	for _, p := range d.Panels {
		t.Run(p.Title, func(t *testing.T) {
			if p.Type != "row" && len(p.Targets) == 0 {
				t.Error("the panel shows nothing")
			}
			for _, target := range p.Targets {
				expr := parse(t, filledIn.Replace(target.Expr))
				for _, wrong := range all.unknownIn(expr) {
					t.Error(wrong)
				}
				has := all.labelsOf(expr)
				for _, m := range legendLabel.FindAllStringSubmatch(target.LegendFormat, -1) {
					if !has[m[1]] {
						t.Errorf("%s: the legend names label %s, which the series have not", target.Expr, m[1])
					}
				}
			}
		})
	}
	for _, v := range d.Vars.List {
		if v.Type == "query" {
			checkVariable(t, all, v.Name, v.Definition)
		}
	}
}

var labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

func checkVariable(t *testing.T, all exposed, name, definition string) {
	t.Helper()
	m := labelValues.FindStringSubmatch(definition)
	if m == nil {
		t.Errorf("variable %s is %q", name, definition)
		return
	}
	expr := parse(t, filledIn.Replace(m[1]))
	selector, ok := expr.(*parser.VectorSelector)
	if wrong := all.unknownIn(expr); !ok || len(wrong) > 0 || !all[selector.Name][m[2]] {
		t.Errorf("variable %s asks for label %s of %s: %v", name, m[2], m[1], wrong)
	}
}

func TestPanelsAreApart(t *testing.T) {
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range readDashboard(t).Panels {
		if ids[p.ID] {
			t.Errorf("panel %s has the ID of another", p.Title)
		}
		ids[p.ID] = true
		g := p.GridPos
		if g.X < 0 || g.X+g.W > 24 {
			t.Errorf("panel %s is wider than the page", p.Title)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" && other != p.Title {
					t.Fatalf("panels %s and %s overlap", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}
