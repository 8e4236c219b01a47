package api

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestSinceWhenANodeIsToPull(t *testing.T) {
	since := time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC)
	target := NewTarget("new", &corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:v2"}}})
	asked := target
	asked.Prepull = &metav1.Time{Time: since.Add(999 * time.Millisecond)} // whole seconds are kept
	const onTheWire = `{"revision":"new","containers":[{"name":"app","image":"app:v2"}],"prepull":"2026-01-01T10:00:00Z"}`
	if got := asked.Encode(); got != onTheWire {
		t.Fatalf("got %s, want %s", got, onTheWire)
	}
	tests := map[string]struct {
		pod      *corev1.Pod
		revision string
		want     bool
	}{
		"the revision that is asked for": {podWith(map[string]string{TargetAnnotation: onTheWire}), "new", true},
		"another one":                    {podWith(map[string]string{TargetAnnotation: onTheWire}), "newer", false},
		"one for the owner to decide":    {podWith(map[string]string{TargetAnnotation: target.Encode()}), "new", false},
		"no target":                      {podWith(nil), "new", false},
		"nothing usable":                 {podWith(map[string]string{TargetAnnotation: "soon"}), "new", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := NewPrepulls(tt.revision)
			for range 2 { // the second time from what is known
				got, ok := p.Since(tt.pod)
				if ok != tt.want || (ok && !got.Equal(since)) {
					t.Errorf("got %v, %t", got, ok)
				}
				now, want := since.Add(time.Hour), since
				if !tt.want {
					want = now
				}
				if got := p.From(tt.pod, now); !got.Equal(want) {
					t.Errorf("from %v, want %v", got, want)
				}
				early := since.Add(-time.Hour)
				if got := p.From(tt.pod, early); !got.Equal(early) {
					t.Errorf("from %v, want %v: a time to come is none", got, early)
				}
			}
		})
	}
}
