package main

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWhetherTheControllerRuns(t *testing.T) {
	start := time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC)
	lease := func(holder string, silent time.Duration) coordinationv1.Lease {
		seconds, renewed := int32(15), metav1.NewMicroTime(start.Add(-silent))
		l := coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &renewed}}
		l.Namespace, l.Name = "edgehub-system", "edgehub-controller"
		return l
	}
	tests := map[string]struct {
		leases []coordinationv1.Lease
		spoke  bool
		want   string // words of the warning; "" for none
	}{
		"it renewed its lease just now":                  {[]coordinationv1.Lease{lease("a", time.Second)}, true, ""},
		"it renewed its lease, and has said nothing":     {[]coordinationv1.Lease{lease("a", time.Second)}, false, ""},
		"it is being replaced":                           {[]coordinationv1.Lease{lease("a", 20*time.Second)}, true, ""},
		"it has been silent for long":                    {[]coordinationv1.Lease{lease("a", 5*time.Minute)}, true, "edgehub-system/edgehub-controller since 2026-01-01 09:55:00 UTC"},
		"it gave its lease back":                         {[]coordinationv1.Lease{lease("", time.Second)}, true, "seems not to run"},
		"the newest of several leases counts":            {[]coordinationv1.Lease{lease("a", time.Hour), lease("b", 0), lease("c", time.Hour)}, true, ""},
		"no lease, though it has spoken":                 {nil, true, ""},
		"no lease, and no word about this revision":      {nil, false, "there is no lease edgehub-controller"},
		"a lease that was never held is as good as none": {[]coordinationv1.Lease{{}}, false, "there is no lease"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := evaluateLeases(tt.leases, start, tt.spoke)
			if !strings.Contains(got, tt.want) || (tt.want == "") != (got == "") {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
