package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/view"
	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/ota/api"
)

// ago is a time so long before now that a test may take a while.
func ago(d time.Duration) time.Time {
	return time.Now().Add(-d - 10*time.Second).UTC().Truncate(time.Second)
}

// healthy is a hub with a cloud, a cache and nothing to pull.
func healthy(t *testing.T) *fakeHub {
	return newFakeHub(t).
		on("GET", api.Readyz, answersWith(200, "OK")).
		on("GET", api.ImagePulls, sends(api.ImagePullList{})).
		on("GET", api.Cache, sends(map[string]any{
			"cloud": api.CloudState{Up: true, Since: ago(3 * time.Hour), APIServers: []api.UpstreamState{
				{Address: "https://10.0.0.1:6443", Up: true, Since: ago(3 * time.Hour)},
				{Address: "https://10.0.0.2:6443", Since: ago(20 * time.Minute), Error: "connection refused"},
			}},
			"views": []view.CachedView{
				{User: "node", Resource: "pods.v1", Complete: true, Objects: 12, Bytes: 5000, Updated: ago(20 * time.Minute)},
				{User: "node", Resource: "nodes.v1", Complete: true, Objects: 1, Bytes: 3 * mib, Updated: ago(time.Hour)},
				{User: "node", Resource: "secrets.v1", Complete: true, Objects: 2},
				{User: "system:serviceaccount:shop:web", Resource: "configmaps.v1", Objects: 3, Bytes: 100, Updated: ago(9 * time.Hour)},
			},
		}))
}

func TestStatusOfAHub(t *testing.T) {
	h := healthy(t)
	want := strings.NewReplacer("ADDRESS", h.address, "SINCE", ago(3*time.Hour).Format(time.RFC3339)).Replace(`hub         ready on ADDRESS
cloud       reached for 3h, since SINCE
apiserver   https://10.0.0.1:6443  up for 3h
apiserver   https://10.0.0.2:6443  down for 20m, connection refused
cache       4 views, 18 objects, 3.0 MiB; 1 of the views read in part so far,
            and not for use offline; oldest: nodes.v1 of node, as of 60m ago
images      none are pulled ahead
`)
	h.edgehubctl(t, "status").is(t, cli.Done, want, "")
}

func TestStatusOfAHubWithoutItsCloud(t *testing.T) {
	h := healthy(t).on("GET", api.Cache, sends(map[string]any{"cloud": api.CloudState{Since: ago(12 * time.Minute)}, "views": []view.CachedView{}})).
		on("GET", api.Readyz, answersWith(200, "OK, offline since 2026"))
	h.edgehubctl(t, "status").has(t, cli.Done, "cloud       offline for 12m, since "+ago(12*time.Minute).Format(time.RFC3339)+"; the node is served from\n            the cache\ncache       0 views, 0 objects, 0 B\n", "")
}

func TestStatusOfANodeThatWasCloned(t *testing.T) {
	h := healthy(t).on("GET", api.Cache, sends(map[string]any{"clone": "another machine runs as node n1"}))
	h.edgehubctl(t, "status").is(t, cli.Done, "hub         ready on "+h.address+"\nnode        another machine runs as node n1\nimages      none are pulled ahead\n", "")
	h.edgehubctl(t, "status", "-o", "json").has(t, cli.Done, `"clone": "another machine runs as node n1"`, "")
}

func TestStatusOfAHubThatIsNotReady(t *testing.T) {
	h := healthy(t).on("GET", api.Readyz, answersWith(500, "not ready: no certificate yet"))
	h.edgehubctl(t, "status").has(t, cli.NotNow, "hub         not ready on "+h.address, "error: not ready: no certificate yet\n")
	h.edgehubctl(t, "status", "-o", "json").has(t, cli.NotNow, `"readiness": "not ready: no certificate yet"`, "error: not ready: no certificate yet\n")
}

func TestStatusOfAnOlderHub(t *testing.T) {
	h := newFakeHub(t).on("GET", api.Readyz, answersWith(200, "OK"))
	h.edgehubctl(t, "status").is(t, cli.Done, "hub         ready on "+h.address+"\nimages      none are pulled ahead\n", "")
}

func TestStatusShowsTheQueueOfImages(t *testing.T) {
	other := imagePull(api.Failed, image("app:1", api.Failed, 0, 0, failing("ImageNotFound", "no such tag", time.Hour+30*time.Second)))
	other.Pod = "web-2"
	h := healthy(t).on("GET", api.ImagePulls, sends(api.ImagePullList{Items: []api.ImagePull{
		imagePull(api.Pulling, image("app:1", api.Pulling, 10*mib, 40*mib), image("init:1", api.Ready, 2*mib, 2*mib)), other,
	}}))
	h.edgehubctl(t, "status").has(t, cli.Done, `images      for 2 pods: 1 pulling, 1 failed

POD          REVISION   IMAGE    STATE
shop/web-1   7c9b       app:1    pulling, 25%, 10.0 of 40.0 MiB
shop/web-1   7c9b       init:1   ready, 2.0 MiB
shop/web-2   7c9b       app:1    failed, again in 60m: no such tag
`, "")
}

func TestStatusAsJSON(t *testing.T) {
	got := healthy(t).edgehubctl(t, "status", "-o", "json")
	var r view.Status
	if err := json.Unmarshal([]byte(got.out), &r); err != nil {
		t.Fatalf("%v: %s", err, got.out)
	}
	if !r.Ready || r.Readiness != "OK" || r.Cloud == nil || len(r.Cloud.APIServers) != 2 || r.Cache == nil ||
		r.Cache.Views != 4 || r.Cache.Incomplete != 1 || r.Cache.Oldest == nil || r.Cache.Oldest.Resource != "nodes.v1" || r.ImagePulls == nil {
		t.Errorf("got %s", got.out)
	}
}

func TestStatusThatBreaksOff(t *testing.T) {
	for _, path := range []string{api.Readyz, api.Cache, api.ImagePulls} {
		h := healthy(t).on("GET", path, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		h.edgehubctl(t, "status").is(t, cli.Failed, "", "error: the hub does not answer on "+h.address+": EOF\n")
	}
}

// leading is a hub that three pods use, or bypass.
func leading(t *testing.T, access api.PodAccess) *fakeHub {
	access.Addresses = []string{"169.254.2.1:10268", "[fd00::2:1]:10268"}
	access.CACreated = time.Date(2026, 11, 22, 1, 2, 3, 0, time.UTC)
	return healthy(t).on("GET", api.Cache, sends(map[string]any{
		"cloud": api.CloudState{Up: true, Since: ago(3 * time.Hour)}, "views": []view.CachedView{},
		"podAccess": access, "transforms": []string{"apiserver-service", "root-ca"},
	}))
}

func TestStatusShowsWhichPodsUseTheHub(t *testing.T) {
	h := leading(t, api.PodAccess{Pods: []api.PodRoute{
		{Namespace: "kube-system", Name: "kube-proxy-x", Route: api.ThroughHub, Owner: "DaemonSet/kube-proxy"},
		{Namespace: "shop", Name: "bare", Route: api.Bypass, Keep: "it has no controller that would replace it"},
		{Namespace: "shop", Name: "proxied", Route: api.Proxied, Owner: "ReplicaSet/p", Proxy: "because", Keep: "because"},
		{Namespace: "shop", Name: "web-1", Route: api.Bypass, Owner: "ReplicaSet/web"},
	}})
	const lines = `pods        1 use the hub at 169.254.2.1:10268, [fd00::2:1]:10268; 2 bypass it until they restart; 1 use a proxy for its address; -o wide says why
transforms  apiserver-service, root-ca
pods' CA    since 2026-11-22; it does not expire
images      none are pulled ahead
`
	h.edgehubctl(t, "status").has(t, cli.Done, `pods        1 use the hub at 169.254.2.1:10268, [fd00::2:1]:10268; 2 bypass it
            until they restart; 1 use a proxy for its address; -o wide says why
`, "")
	h.edgehubctl(t, "status", "-o", "wide").has(t, cli.Done, lines+`
BYPASSES THE HUB   OWNER            UNTIL IT RESTARTS
shop/bare          -                it has no controller that would replace it
shop/web-1         ReplicaSet/web   kubectl delete pod --namespace=shop web-1

USES A PROXY FOR THE HUB   OWNER          WHERE, AND WHAT TO DO
shop/proxied               ReplicaSet/p   because
`, "")
	h.edgehubctl(t, "status", "-o", "json").has(t, cli.Done, `"name": "web-1"`, "")
}

func TestStatusShowsWhereTheClusterIPLeads(t *testing.T) {
	past, toHub := &api.ClusterIP{}, &api.ClusterIP{InForce: true}
	pods := []api.PodRoute{
		{Namespace: "shop", Name: "bare", Route: api.Bypass, Keep: "it has no controller that would replace it", Distrusts: true},
		{Namespace: "shop", Name: "script", Route: api.Bypass, Owner: "ReplicaSet/script", Keep: "it sets it", SetsAddress: true, Distrusts: true},
		{Namespace: "shop", Name: "shipper", Route: api.ThroughHub, Owner: "DaemonSet/shipper"},
		{Namespace: "shop", Name: "web-1", Route: api.Bypass, Owner: "ReplicaSet/web", Distrusts: true},
	}
	const table = `
DOES NOT TRUST THE HUB   OWNER               UNTIL IT RESTARTS
shop/bare                -                   it has no controller that would replace it
shop/script              ReplicaSet/script   a restart is enough, whatever address it sets
shop/web-1               ReplicaSet/web      kubectl delete pod --namespace=shop web-1
`
	for name, tt := range map[string]struct {
		access api.PodAccess
		line   string
		table  bool
	}{
		"not asked for":        {api.PodAccess{Pods: pods}, "", false},
		"not in force":         {api.PodAccess{Pods: pods, ClusterIP: past}, "leads past the hub while the cloud is there, until pods restart that do not trust it (3); -o wide names them", true},
		"about to be in force": {api.PodAccess{Pods: pods[2:3], ClusterIP: past}, "leads past the hub while the cloud is there; all pods trust it, so that ends within seconds", false},
		"in force":             {api.PodAccess{Pods: pods[2:3], ClusterIP: toHub}, "leads to the hub: all pods trust it", false},
		"in force, and not known any more": {
			api.PodAccess{ClusterIP: toHub, Unknown: "containerd is away"}, "leads to the hub; it is not known whether all pods still trust it", false,
		},
		"not known": {
			api.PodAccess{ClusterIP: past, Unknown: "containerd is away"}, "leads past the hub while the cloud is there; it is not known which pods trust it", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := leading(t, tt.access)
			out := h.edgehubctl(t, "status", "-o", "wide")
			out.has(t, cli.Done, "transforms  ", "")
			if tt.line != "" {
				out.has(t, cli.Done, "cluster IP  "+tt.line+"\n", "")
			} else if strings.Contains(out.out, "cluster IP") {
				t.Errorf("it prints %s", out.out)
			}
			if strings.Contains(out.out, table) != tt.table {
				t.Errorf("it prints %s", out.out)
			}
		})
	}
}

func TestStatusOfAHubThatDoesNotKnowWhichPodsUseIt(t *testing.T) {
	h := leading(t, api.PodAccess{Unknown: "containerd is away"})
	h.edgehubctl(t, "status", "-o", "wide").has(t, cli.Done,
		"pods        may use the hub at 169.254.2.1:10268, [fd00::2:1]:10268; which do is not known: containerd is away\n", "")
}
