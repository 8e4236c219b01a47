package confirm_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/cache/confirm"
)

// One namespace with many tokens delays only its own.
func TestTenantsTakeTurns(t *testing.T) {
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	since, long := now.Add(-time.Hour), now.Add(-20*time.Minute)
	items := []confirm.Item[string]{{Key: "victim", User: `user:"system:serviceaccount:victims:a"#`, Asked: long.Add(time.Minute), Wanted: true}}
	for i := range 100 {
		items = append(items, confirm.Item[string]{
			Key: "flood", User: fmt.Sprintf(`user:"system:serviceaccount:flood:%d"#`, i), Asked: long, Wanted: true,
		})
	}
	for i, want := range []string{"flood", "victim", "flood", "flood"} {
		next, ok, forget := confirm.Next(items, since, now)
		if !ok || next != want || len(forget) > 0 {
			t.Fatalf("turn %d: %q %t, and %d are forgotten; want %s", i, next, ok, len(forget), want)
		}
		for j := range items {
			if items[j].Key == next && items[j].Asked.Before(now.Add(-confirm.After)) {
				items[j].Asked = now
				break
			}
		}
		now = now.Add(confirm.Pause)
	}
}
