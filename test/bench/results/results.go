// Package results holds the figures of the benchmark: it keeps them in a JSON file, and formats
// them as the table that is printed and that docs/benchmarks.md shows. test/bench/chart draws
// charts of them.
package results

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Parts are the parts of the benchmark, in the order of the table.
func Parts() []string { return []string{"online", "memory", "disk", "offline", "reconnect"} }

// Row is one measure, the median of several rounds.
type Row struct {
	Part string `json:"part"`
	Name string `json:"name"`           // unique in its part
	Unit string `json:"unit,omitempty"` // of Value and Baseline: ms, s, MB, MB/s or /s; "" for a count
	// Value is the hub's.
	Value float64 `json:"value"`
	// Baseline is the value of what the hub is compared with: a bare proxy, or a server with the
	// same bytes in memory. Nil: the hub is measured alone.
	Baseline *float64 `json:"baseline,omitempty"`
	// Ratio is Value by Baseline, as the median of each round's ratio; 0: not computed.
	Ratio float64 `json:"ratio,omitempty"`
	// Range is the least and the most of all rounds: of Ratio, or of Value where there is no Ratio.
	Range *[2]float64 `json:"range,omitempty"`
	// Limit is the most that Ratio, or Value without one, may be. A row without a limit is a detail
	// of another row, and indented in the table.
	Limit *float64 `json:"limit,omitempty"`
}

// Fails reports whether the measure is over its limit.
func (r *Row) Fails() bool { return r.Limit != nil && cmp.Or(r.Ratio, r.Value) > *r.Limit }

// String is the row of the table, without a line feed.
func (r *Row) String() string {
	name := r.Name
	if r.Limit == nil {
		name = "  " + name
	}
	line := fmt.Sprintf("%-46s %10.4g %-10s", name, r.Value, r.Unit)
	if r.Baseline != nil {
		line = fmt.Sprintf("%-46s %12s %12s", name, r.Amount(*r.Baseline), r.Amount(r.Value))
	}
	if r.Ratio != 0 {
		line += fmt.Sprintf("   %5.2f (%.2f to %.2f)", r.Ratio, r.Range[0], r.Range[1])
	} else if r.Range != nil {
		line += fmt.Sprintf(" (%.4g to %.4g)", r.Range[0], r.Range[1])
	}
	return strings.TrimRight(line+r.verdict(), " ")
}

func (r *Row) verdict() string {
	switch {
	case r.Limit == nil:
		return ""
	case r.Ratio != 0 && r.Fails():
		return fmt.Sprintf("  FAILS: over %.2f", *r.Limit)
	case r.Ratio != 0:
		return fmt.Sprintf("  ok: within %.2f", *r.Limit)
	case r.Fails():
		return fmt.Sprintf("  FAILS: over %g", *r.Limit)
	}
	return fmt.Sprintf("  ok: at most %g", *r.Limit)
}

// Amount formats a value in the unit of the row, with three or four digits.
func (r *Row) Amount(value float64) string {
	if r.Unit != "ms" {
		return strings.TrimSpace(fmt.Sprintf("%.4g %s", value, r.Unit))
	}
	d := time.Duration(value * float64(time.Millisecond)).Round(time.Microsecond)
	switch {
	case d > time.Second:
		d = d.Round(10 * time.Millisecond)
	case d > 10*time.Millisecond:
		d = d.Round(100 * time.Microsecond)
	}
	return d.String()
}

// Heading is what the table has above row: the part where that begins, and the columns where
// the hub is first compared with something.
func Heading(row, previous *Row) string {
	var heading string
	isNew := previous == nil || previous.Part != row.Part
	if isNew && previous != nil {
		heading = "\n"
	}
	if isNew {
		heading += row.Part + "\n"
	}
	if row.Baseline != nil && (isNew || previous.Baseline == nil) {
		beside := "bare proxy"
		if row.Part == "offline" {
			beside = "plain server"
		}
		heading += fmt.Sprintf("%-46s %12s %12s   ratio (range)\n", "", beside, "edgehub")
	}
	return heading
}

// Table is all rows with their headings.
func Table(rows []Row) string {
	var out strings.Builder
	var previous *Row
	for i := range rows {
		out.WriteString(Heading(&rows[i], previous) + rows[i].String() + "\n")
		previous = &rows[i]
	}
	return out.String()
}

// Find returns the row of a part with a name, or nil.
func Find(rows []Row, part, name string) *Row {
	i := slices.IndexFunc(rows, func(r Row) bool { return r.Part == part && r.Name == name })
	if i < 0 {
		return nil
	}
	return &rows[i]
}

// Load reads the rows in a file.
func Load(file string) ([]Row, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var rows []Row
	if err := json.Unmarshal(text, &rows); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return rows, nil
}

// Save writes rows into a file with four significant digits, one row a line. Parts that the file
// has and rows do not remain, so that a file can be filled by several runs.
func Save(file string, rows []Row) error {
	all, err := Load(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	all = slices.DeleteFunc(all, func(old Row) bool {
		return slices.ContainsFunc(rows, func(r Row) bool { return r.Part == old.Part })
	})
	all = append(all, rows...)
	slices.SortStableFunc(all, func(a, b Row) int {
		return cmp.Compare(slices.Index(Parts(), a.Part), slices.Index(Parts(), b.Part))
	})
	var lines []string
	for i := range all {
		line, err := json.Marshal(all[i].rounded())
		if err != nil {
			return err
		}
		lines = append(lines, string(line))
	}
	return os.WriteFile(file, []byte("[\n"+strings.Join(lines, ",\n")+"\n]\n"), 0o644)
}

func (r Row) rounded() Row {
	r.Value, r.Ratio = fourDigits(r.Value), fourDigits(r.Ratio)
	if r.Baseline != nil {
		r.Baseline = new(fourDigits(*r.Baseline))
	}
	if r.Range != nil {
		r.Range = &[2]float64{fourDigits(r.Range[0]), fourDigits(r.Range[1])}
	}
	return r
}

func fourDigits(x float64) float64 {
	y, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 4, 64), 64) // always a number
	return y
}
