package quota_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/cache/quota"
)

// One namespace with many tokens delays only its own.
func TestTenantsTakeTurns(t *testing.T) {
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	turns, long := quota.Turns{After: 10 * time.Minute, Within: 30 * time.Minute, Since: now.Add(-time.Hour)}, now.Add(-20*time.Minute)
	items := []quota.Asked[string]{{Key: "victim", User: `user:"system:serviceaccount:victims:a"#`, Last: long.Add(time.Minute), Wanted: true}}
	for i := range 100 {
		items = append(items, quota.Asked[string]{
			Key: "flood", User: fmt.Sprintf(`user:"system:serviceaccount:flood:%d"#`, i), Last: long, Wanted: true,
		})
	}
	for i, want := range []string{"flood", "victim", "flood", "flood"} {
		next, ok, forget := quota.Next(turns, items, now)
		if !ok || next != want || len(forget) > 0 {
			t.Fatalf("turn %d: %q %t, and %d are forgotten; want %s", i, next, ok, len(forget), want)
		}
		for j := range items {
			if items[j].Key == next && items[j].Last.Before(now.Add(-turns.After)) {
				items[j].Last = now
				break
			}
		}
		now = now.Add(6 * time.Second)
	}
}
