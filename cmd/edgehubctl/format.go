package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// unitOf returns the unit in which n bytes are shown.
func unitOf(n int64) (one int64, unit string) {
	units := []string{"B", "KiB", "MiB", "GiB"}
	one = 1
	for len(units) > 1 && n >= 1024*one {
		one, units = one*1024, units[1:]
	}
	return one, units[0]
}

// amount formats n bytes as a number of units, without the unit's name.
func amount(n, unit int64) string {
	if unit == 1 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%.1f", float64(n)/float64(unit))
}

// size is n bytes for people: 31.4 MiB.
func size(n int64) string {
	one, unit := unitOf(n)
	return amount(n, one) + " " + unit
}

// bytesOf is a part of a whole: 3.1 of 31.4 MiB.
func bytesOf(done, total int64) string {
	one, unit := unitOf(total)
	return amount(done, one) + " of " + amount(total, one) + " " + unit
}

// percent is below 100 until all is done.
func percent(done, total int64) int {
	if total <= 0 {
		return 0
	}
	return int(max(0, min(done, total)) * 100 / total)
}

// seconds formats a duration, less exactly the longer it is: 8s, 3m5s, 3h12m.
func seconds(d time.Duration) string { return duration.HumanDuration(max(0, d).Round(time.Second)) }

// age is how long ago t was.
func age(t, now time.Time) string { return seconds(now.Sub(t)) }

// brief formats how long something took, below 10 s with tenths of a second.
func brief(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return seconds(d)
}

// plural is a count with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// printJSON prints v over many lines.
func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}
