package ota

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestRefusalsDoNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		pod, gone := types.NamespacedName{Namespace: "default", Name: "x"}, failf(404, "gone")
		s := &server{Options: Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))}}
		for range 13000 {
			s.logRefusal(t.Context(), "rollback not started", pod, gone)
		}
		if n := strings.Count(logged.String(), "\n"); n != refusalsAtOnce {
			t.Errorf("%d lines, want %d", n, refusalsAtOnce)
		}
		s.logRefusal(t.Context(), "rollback not started", pod, failf(403, "no"))
		s.logRefusal(t.Context(), "pod not held", pod, gone)
		if n := strings.Count(logged.String(), "\n"); n != refusalsAtOnce+2 {
			t.Errorf("other kinds: %d lines, want %d", n, refusalsAtOnce+2)
		}
		time.Sleep(time.Minute)
		logged.Reset()
		for range 10 {
			s.logRefusal(t.Context(), "rollback not started", pod, gone)
		}
		if got := logged.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "pod=default/x code=404 error=gone others=12980") {
			t.Errorf("a minute later: %s", got)
		}
	})
}
