package metric

import "testing"

func TestSum(t *testing.T) {
	const text = `# HELP commits Commits.
# TYPE commits counter
commits{result="ok",view="a"} 3
commits{result="ok",view="b"} 4
commits{result="error",view="a"} 1e+06
commits_total 9
plain 2.5
broken x
plain_without_value`
	for name, tt := range map[string]struct {
		metric string
		labels []string
		want   float64
		found  bool
		fails  bool
	}{
		"all labels":                  {"commits", nil, 1_000_007, true, false},
		"one label":                   {"commits", []string{`result="ok"`}, 7, true, false},
		"two labels":                  {"commits", []string{`result="ok"`, `view="b"`}, 4, true, false},
		"no line has the label":       {"commits", []string{`result="no"`}, 0, false, false},
		"a name that others begin as": {"commits_total", nil, 9, true, false},
		"no labels":                   {"plain", nil, 2.5, true, false},
		"none":                        {"commit", nil, 0, false, false},
		"no number":                   {"broken", nil, 0, false, true},
		"a line that ends early":      {"plain_without_value", nil, 0, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			sum, found, err := Sum(text, tt.metric, tt.labels...)
			if sum != tt.want || found != tt.found || (err != nil) != tt.fails {
				t.Errorf("got %v, %v, %v", sum, found, err)
			}
		})
	}
}
