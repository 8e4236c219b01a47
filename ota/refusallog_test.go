package ota

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/bundle"
)

func TestRefusalsDoNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		pod, gone := types.NamespacedName{Namespace: "default", Name: "x"}, failf(404, "gone")
		var refusals refusalLog
		log := func(what string, pod types.NamespacedName, err error) {
			if line, ok := refusals.line(what, pod, err); ok {
				slog.New(slog.NewTextHandler(&logged, nil)).LogAttrs(t.Context(), slog.LevelWarn, "refused", line...)
			}
		}
		for range 13000 {
			log("rollback", pod, gone)
		}
		if n := strings.Count(logged.String(), "\n"); n != refusalsAtOnce {
			t.Errorf("%d lines, want %d", n, refusalsAtOnce)
		}
		log("rollback", pod, failf(403, "no"))
		log("hold", pod, gone)
		if n := strings.Count(logged.String(), "\n"); n != refusalsAtOnce+2 {
			t.Errorf("other kinds: %d lines, want %d", n, refusalsAtOnce+2)
		}
		time.Sleep(time.Minute)
		logged.Reset()
		for range 10 {
			log("rollback", pod, gone)
		}
		if got := logged.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "pod=default/x code=404 error=gone others=12980") {
			t.Errorf("a minute later: %s", got)
		}
	})
}

// refusing stands for bundles that no key has signed.
type refusing struct{ Bundles }

func (refusing) Take([]byte) (api.UpgradeBundle, error) {
	return api.UpgradeBundle{}, &bundle.RefusedError{Why: "nobody has signed it"}
}

func (refusing) Offered(pod *corev1.Pod) *corev1.Pod { return pod }

func TestRefusedBundlesDoNotFillTheLog(t *testing.T) {
	var logged bytes.Buffer
	url := (&cloud{list: podList()}).start(t, Options{Bundles: refusing{}, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	for range refusalsAtOnce + 5 {
		call(t, "POST", url+api.UpgradeBundles).wants(t, http.StatusForbidden, "nobody has signed it")
	}
	if n := strings.Count(logged.String(), "nobody has signed it"); n != refusalsAtOnce {
		t.Errorf("%d lines, want %d", n, refusalsAtOnce)
	}
}
