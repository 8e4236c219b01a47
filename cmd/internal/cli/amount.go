package cli

import (
	"fmt"
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

// Size is n bytes for people: 31.4 MiB.
func Size(n int64) string {
	one, unit := unitOf(n)
	return amount(n, one) + " " + unit
}

// BytesOf is a part of a whole: 3.1 of 31.4 MiB.
func BytesOf(done, total int64) string {
	one, unit := unitOf(total)
	return amount(done, one) + " of " + amount(total, one) + " " + unit
}

// Percent is below 100 until all is done.
func Percent(done, total int64) int {
	if total <= 0 {
		return 0
	}
	return int(max(0, min(done, total)) * 100 / total)
}

// Seconds formats a duration, less exactly the longer it is: 8s, 3m5s, 3h12m.
func Seconds(d time.Duration) string { return duration.HumanDuration(max(0, d).Round(time.Second)) }

// Age is how long ago t was.
func Age(t, now time.Time) string { return Seconds(now.Sub(t)) }

// Brief formats how long something took, below 10 s with tenths of a second.
func Brief(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return Seconds(d)
}

// Plural is a count with its noun.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
