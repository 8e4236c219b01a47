package cli

import (
	"testing"
	"time"
)

const mib = 1 << 20

func TestSizes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 31*mib + mib/2: "31.5 MiB", 5000 * mib: "4.9 GiB", 5000 * 1024 * mib: "5000.0 GiB"} {
		if got := Size(n); got != want {
			t.Errorf("%d: got %q, want %q", n, got, want)
		}
	}
}

func TestBriefDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0.0s", 1234 * time.Millisecond: "1.2s", 12 * time.Second: "12s", 185 * time.Second: "3m5s", 3 * time.Hour: "3h"} {
		if got := Brief(d); got != want {
			t.Errorf("%v: got %q, want %q", d, got, want)
		}
	}
}
