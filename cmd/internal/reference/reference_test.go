package reference

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
)

func TestFlagsAreATable(t *testing.T) {
	fs := pflag.NewFlagSet("program", pflag.ContinueOnError)
	fs.SortFlags = false
	fs.StringP("output", "o", "", "text|json")
	fs.Duration("wait", time.Minute, "how long")
	fs.UintSlice("users", []uint{0, 7}, "IDs")
	fs.Bool("secret", false, "not shown")
	if err := fs.MarkHidden("secret"); err != nil {
		t.Fatal(err)
	}
	want := "| flag | default | meaning |\n|---|---|---|\n" +
		"| `-o`, `--output` |  | text\\|json |\n" +
		"| `--wait` | `1m0s` | how long |\n" +
		"| `--users` | `0,7` | IDs |\n"
	if got := Flags(fs); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestMetricsAreATable(t *testing.T) {
	r, nested := prometheus.NewRegistry(), prometheus.NewRegistry()
	nested.MustRegister(
		prometheus.NewCounterVec(prometheus.CounterOpts{Name: "e_total", Help: "No element, and nested."}, []string{"x"}),
		prometheus.NewGauge(prometheus.GaugeOpts{Name: "f", Help: "Nested."}))
	for _, port := range []string{"a", "b"} {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "c", Help: `A "constant" label.`, ConstLabels: prometheus.Labels{"port": port},
		}, func() float64 { return 1 }))
	}
	r.MustRegister(nested,
		prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "b_seconds", Help: "No element."}, []string{"verb", "code"}),
		prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "d", Help: "No element."}, []string{"x"}),
		prometheus.NewCounterVec(prometheus.CounterOpts{Name: "a", Help: "No element."}, []string{"x"}))
	want := "| metric | type | labels | meaning |\n|---|---|---|---|\n" +
		"| `a` | counter | `x` | No element. |\n" +
		"| `b_seconds` | histogram | `verb`, `code` | No element. |\n" +
		"| `c` | gauge | `port` | A \"constant\" label. |\n" +
		"| `d` | gauge | `x` | No element. |\n" +
		"| `e_total` | counter | `x` | No element, and nested. |\n" +
		"| `f` | gauge |  | Nested. |\n"
	if got, err := Metrics(r); err != nil || got != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, got, want)
	}
}

func TestAMetricOfUnknownTypeIsAnError(t *testing.T) {
	r, nested := prometheus.NewRegistry(), prometheus.NewRegistry()
	nested.MustRegister(
		prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "a", Help: "No element, and nested."}, []string{"x"}),
		prometheus.NewGauge(prometheus.GaugeOpts{Name: "b", Help: "Nested."}))
	r.MustRegister(nested)
	if _, err := Metrics(r); err == nil || !strings.Contains(err.Error(), "metric a") {
		t.Errorf("got %v", err)
	}
}

func TestASectionIsReplaced(t *testing.T) {
	const page = "# Page\n\n<!-- generated: one -->\nold\n<!-- end -->\n\ntext\n\n<!-- generated: two -->\n<!-- end -->\n"
	tests := map[string]struct{ text, section, want, wantErr string }{
		"what stands around it stays": {text: page, section: "one", want: strings.Replace(page, "old\n", "\nnew\n\n", 1)},
		"an empty one":                {text: page, section: "two", want: strings.Replace(page, "two -->\n", "two -->\n\nnew\n\n", 1)},
		"one that is not there":       {text: page, section: "three", wantErr: "there is no line"},
		"one without an end":          {text: "<!-- generated: one -->\n", section: "one", wantErr: "there is no line"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := replaceSection(tt.text, tt.section, "new")
			if tt.wantErr == "" && err != nil || tt.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tt.wantErr)) {
				t.Fatalf("got %v, want %q", err, tt.wantErr)
			}
			if got != tt.want {
				t.Errorf("got %q\nwant %q", got, tt.want)
			}
		})
	}
}
