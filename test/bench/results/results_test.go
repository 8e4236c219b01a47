package results

import (
	"path/filepath"
	"testing"
)

func TestRows(t *testing.T) {
	limit := func(x float64) *float64 { return &x }
	tests := map[string]struct {
		row   Row
		want  string
		fails bool
	}{
		"a ratio within its limit": {
			Row{Name: "GET", Unit: "ms", Value: 1.5, Baseline: limit(1), Ratio: 1.25, Range: &[2]float64{1, 2}, Limit: limit(1.25)},
			"GET                                                     1ms        1.5ms    1.25 (1.00 to 2.00)  ok: within 1.25", false,
		},
		"a ratio over its limit": {
			Row{Name: "GET", Unit: "ms", Value: 1.5, Baseline: limit(1), Ratio: 1.251, Range: &[2]float64{1, 2}, Limit: limit(1.25)},
			"GET                                                     1ms        1.5ms    1.25 (1.00 to 2.00)  FAILS: over 1.25", true,
		},
		"a value over its limit": {
			Row{Name: "resident", Unit: "MB", Value: 81, Range: &[2]float64{79, 82}, Limit: limit(80)},
			"resident                                               81 MB         (79 to 82)  FAILS: over 80", true,
		},
		"none where none is allowed": {
			Row{Name: "LISTs", Range: &[2]float64{}, Limit: limit(0)},
			"LISTs                                                   0            (0 to 0)  ok: at most 0", false,
		},
		"a detail of the hub":          {Row{Name: "idle", Unit: "MB", Value: 26}, "  idle                                                 26 MB", false},
		"a detail of both":             {Row{Name: "rate", Unit: "MB/s", Value: 141.2, Baseline: limit(139)}, "  rate                                             139 MB/s   141.2 MB/s", false},
		"times keep about four digits": {Row{Name: "slow", Unit: "ms", Value: 12345.678, Baseline: limit(-0.0209)}, "  slow                                                -21µs       12.35s", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.row.String(); got != tt.want || tt.row.Fails() != tt.fails {
				t.Errorf("fails: %v, and\ngot  %q\nwant %q", tt.row.Fails(), got, tt.want)
			}
		})
	}
}

func TestAFileIsFilledBySeveralRuns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.json")
	runs := [][]Row{
		{{Part: "disk", Name: "syncs", Value: 0.98691}, {Part: "reconnect", Name: "LISTs", Value: 600}},
		{{Part: "online", Name: "GET", Value: 1, Baseline: new(2.00001)}, {Part: "disk", Name: "writes", Value: 2}},
	}
	for _, rows := range runs {
		if err := Save(file, rows); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	want := "online\n                                                 bare proxy      edgehub   ratio (range)\n" +
		"  GET                                                     2            1\n\ndisk\n  writes                                                2\n" +
		"\nreconnect\n  LISTs                                               600\n"
	if got := Table(rows); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if r := Find(rows, "online", "GET"); r == nil || *r.Baseline != 2 {
		t.Errorf("got %+v, want four digits of the baseline", r)
	}
	if r := Find(rows, "disk", "syncs"); r != nil {
		t.Errorf("an earlier run of the part remains: %+v", r)
	}
}
