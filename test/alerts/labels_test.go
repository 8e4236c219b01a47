package alerts

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// unknownIn returns which metrics and labels in expr neither hub nor controller has.
func (e exposed) unknownIn(expr parser.Expr) []string {
	var wrong []string
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			if e[n.Name] == nil {
				wrong = append(wrong, fmt.Sprintf("nobody has metric %q", n.Name))
				return nil
			}
			for _, m := range n.LabelMatchers {
				if m.Name != model.MetricNameLabel && !e[n.Name][m.Name] {
					wrong = append(wrong, fmt.Sprintf("metric %s has no label %s", n.Name, m.Name))
				}
			}
		case *parser.AggregateExpr:
			wrong = append(wrong, e.missing(n.Expr, n.Grouping)...)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				wrong = append(wrong, e.missing(n.LHS, n.VectorMatching.MatchingLabels)...)
				wrong = append(wrong, e.missing(n.RHS, n.VectorMatching.MatchingLabels)...)
			}
		}
		return nil
	})
	return wrong
}

func (e exposed) missing(expr parser.Expr, names []string) []string {
	var wrong []string
	has := e.labelsOf(expr)
	for _, name := range names {
		if !has[name] {
			wrong = append(wrong, fmt.Sprintf("%s has no label %s", expr, name))
		}
	}
	return wrong
}

// labelsOf are the labels that the series may have which expr results in.
func (e exposed) labelsOf(expr parser.Expr) map[string]bool {
	switch n := expr.(type) {
	case *parser.VectorSelector:
		return e[n.Name]
	case *parser.MatrixSelector:
		return e.labelsOf(n.VectorSelector)
	case *parser.SubqueryExpr:
		return e.labelsOf(n.Expr)
	case *parser.ParenExpr:
		return e.labelsOf(n.Expr)
	case *parser.UnaryExpr:
		return e.labelsOf(n.Expr)
	case *parser.AggregateExpr:
		return e.labelsOfAggregate(n)
	case *parser.BinaryExpr:
		return e.labelsOfBinary(n)
	case *parser.Call:
		return e.labelsOfCall(n)
	}
	return nil
}

func (e exposed) labelsOfAggregate(n *parser.AggregateExpr) map[string]bool {
	inner := e.labelsOf(n.Expr)
	switch {
	case n.Op == parser.TOPK || n.Op == parser.BOTTOMK:
		return inner
	case n.Without:
		out := maps.Clone(inner)
		for _, name := range n.Grouping {
			delete(out, name)
		}
		return out
	}
	return setOf(n.Grouping)
}

func (e exposed) labelsOfBinary(n *parser.BinaryExpr) map[string]bool {
	switch m := n.VectorMatching; {
	case n.LHS.Type() == parser.ValueTypeScalar:
		return e.labelsOf(n.RHS)
	case m == nil || m.Card == parser.CardManyToMany || !m.On:
		return e.labelsOf(n.LHS)
	default:
		return setOf(m.MatchingLabels)
	}
}

func (e exposed) labelsOfCall(n *parser.Call) map[string]bool {
	if n.Func.Name == "absent" || n.Func.Name == "vector" {
		return map[string]bool{}
	}
	for _, arg := range n.Args {
		if t := arg.Type(); t == parser.ValueTypeVector || t == parser.ValueTypeMatrix {
			out := maps.Clone(e.labelsOf(arg))
			if n.Func.Name == "histogram_quantile" {
				delete(out, "le")
			}
			return out
		}
	}
	return nil
}

func setOf(names []string) map[string]bool {
	out := map[string]bool{}
	for _, name := range names {
		out[name] = true
	}
	return out
}

// What finds faults has to find them.
func TestUnknownMetricsAndLabelsAreFound(t *testing.T) {
	e := exposed{}
	e.add("a", []string{"x"})
	for expr, want := range map[string]string{
		`b`:                               `nobody has metric "b"`,
		`a{y="1"}`:                        "metric a has no label y",
		`sum by (y) (a)`:                  "a has no label y",
		`sum by (x) (sum by (job) (a))`:   "sum by (job) (a) has no label x",
		`a and on (y) a`:                  "a has no label y",
		`sum by (x) (rate(a{x="1"}[1m]))`: "",
		`max(absent(c))`:                  `nobody has metric "c"`,
	} {
		got := e.unknownIn(parse(t, expr))
		if want == "" && len(got) > 0 || want != "" && !slices.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", expr, got, want)
		}
	}
}
