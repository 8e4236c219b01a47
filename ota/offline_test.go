package ota

import (
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Offline an answer has once that the cloud is away, since when, and what to do.
func TestAnOfflineUpgradeSaysOnceWhatHappened(t *testing.T) {
	const since = "offline since 2026-05-06T07:08:09Z: no apiserver can be reached, and the node is served from the cache"
	// What the hub answers to a write.
	hub := refuse(apierrors.NewServiceUnavailable("edgehub: the cloud cannot be reached, and this cannot be done without it: 192.0.2.1:6443: dial tcp 192.0.2.1:6443: connect: connection refused"))
	for name, tt := range map[string]struct {
		cloud   *cloud
		offline string
		want    []string
	}{
		"a pod that is in the cache": {&cloud{list: podList(upgradable()), delete: hub}, since, []string{"delete pod default/web-1", since, "send the request again once the cloud is back, which GET /v1/readyz tells"}},
		"nothing is in the cache":    {&cloud{list: hub}, since, []string{"look up pod default/web-1", since, "send the request again once the cloud is back, which GET /v1/readyz tells"}},
		"the hub does not know yet that the cloud is away": {&cloud{list: podList(upgradable()), delete: hub}, "",
			[]string{"delete pod default/web-1", "the cloud cannot be reached", "try again", "connection refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := call(t, "POST", tt.cloud.start(t, Options{Offline: func() string { return tt.offline }})+upgradeWeb1)
			if got.code != http.StatusServiceUnavailable {
				t.Errorf("%d %s", got.code, got.body)
			}
			for _, words := range tt.want {
				if strings.Count(got.body, words) != 1 {
					t.Errorf("want %q once in:\n%s", words, got.body)
				}
			}
			said := 0
			for _, words := range []string{"cannot be reached", "can be reached, and", "cloud is away"} {
				said += strings.Count(got.body, words)
			}
			if said != 1 {
				t.Errorf("it says %d times that the cloud is away:\n%s", said, got.body)
			}
		})
	}
}
