package main

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/ota/api"
)

const (
	queuedText = "Upgrade of pod shop/web-1 queued: it starts when the cloud can be reached"
	awayText   = "OK, offline since 2026-01-01T10:00:00Z: no apiserver can be reached\n"
)

func anUpgrade(state api.UpgradeState, change ...func(*api.Upgrade)) api.Upgrade {
	u := api.Upgrade{Namespace: "shop", Pod: "web-1", UID: "uid-web-1", Action: api.UpgradeAction, Revision: newRevision, State: state, Requested: start}
	for _, c := range change {
		c(&u)
	}
	return u
}

func because(message string) func(*api.Upgrade) {
	return func(u *api.Upgrade) { u.Message = message }
}

func upgradeList(all ...api.Upgrade) http.HandlerFunc {
	return sends(api.UpgradeList{Items: all})
}

// queueing is a hub with upgrades that wait.
func queueing(t *testing.T, all ...api.Upgrade) *fakeHub {
	return newFakeHub(t).on("GET", api.Upgrades, upgradeList(all...))
}

func TestAnUpgradePullsFirst(t *testing.T) {
	const asked = "Image pre-pull requested for pod shop/web-1"
	done := lines(imagePull(api.Ready, image("web:v2", api.Ready, 9, 9)))
	hub := func() *fakeHub {
		return newFakeHub(t).on("GET", api.Readyz, answersWith(200, "OK")).on("POST", pullOf, answersWith(200, asked)).
			on("GET", watchOf, answersWith(200, done)).on("POST", upgradeOf, answersWith(200, started))
	}
	hub().edgehubctl(t, "upgrade", "shop/web-1").is(t, cli.Done, asked+"\nweb:v2: ready, 9 B\n"+started+"\n", "")
	hub().edgehubctl(t, "upgrade", "shop/web-1", "-o", "json").is(t, cli.Done, "{\n  \"message\": \""+started+"\"\n}\n", asked+"\nweb:v2: ready, 9 B\n")

	tests := map[string]struct {
		change func(h *fakeHub)
		code   int
		out    string
		err    string
		asks   int // for the upgrade
	}{
		"images that cannot be pulled": {func(h *fakeHub) {
			h.on("GET", watchOf, answersWith(200, lines(imagePull(api.Failed, image("web:v2", api.Failed, 0, 0, failing("ImageNotFound", "no such tag", 0))))))
		}, cli.Failed, asked + "\nweb:v2: failed for good: no such tag\n", "error: the images for pod shop/web-1 cannot be pulled: web:v2: failed for good: no such tag\n", 0},
		"a pull that is refused": {func(h *fakeHub) {
			h.on("POST", pullOf, answersWith(403, "pod shop/web-1 needs no upgrade"))
		}, cli.NotNow, "", "error: pod shop/web-1 needs no upgrade\n", 0},
		"a hub that pulls none": {func(h *fakeHub) {
			h.on("POST", pullOf, answersWith(501, "no images"))
		}, cli.Done, started + "\n", "", 1},
		"an upgrade that is not now": {func(h *fakeHub) {
			h.on("POST", upgradeOf, answersWith(409, "pod shop/web-1 is held"))
		}, cli.NotNow, asked + "\nweb:v2: ready, 9 B\n", "error: pod shop/web-1 is held\n", 1},
		"a hub that is not ready": {func(h *fakeHub) {
			h.on("GET", api.Readyz, answersWith(500, "not ready: caches"))
		}, cli.Done, asked + "\nweb:v2: ready, 9 B\n" + started + "\n", "", 1},
		// Nobody waits for images without the cloud: until they are there, the hub would refuse the upgrade.
		"no cloud": {func(h *fakeHub) {
			h.on("GET", api.Readyz, answersWith(200, awayText)).on("POST", upgradeOf, answersWith(202, queuedText))
		}, cli.Done, queuedText + "\n" + asked + "\n", "", 1},
		"no cloud, and a hub that pulls none": {func(h *fakeHub) {
			h.on("GET", api.Readyz, answersWith(200, awayText)).on("POST", upgradeOf, answersWith(202, queuedText)).on("POST", pullOf, answersWith(501, "no images"))
		}, cli.Done, queuedText + "\n", "", 1},
		"no cloud, and a pull that is refused": {func(h *fakeHub) {
			h.on("GET", api.Readyz, answersWith(200, awayText)).on("POST", upgradeOf, answersWith(202, queuedText)).on("POST", pullOf, answersWith(500, "disk full"))
		}, cli.Done, queuedText + "\n", "its images are not pulled ahead: disk full\n", 1},
		"no cloud, and no queue": {func(h *fakeHub) {
			h.on("GET", api.Readyz, answersWith(200, awayText)).on("POST", upgradeOf, answersWith(503, "offline"))
		}, cli.NotNow, "", "error: offline\n", 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := hub()
			tt.change(h)
			h.edgehubctl(t, "upgrade", "shop/web-1").is(t, tt.code, tt.out, tt.err)
			if n := h.count("POST " + upgradeOf); n != tt.asks {
				t.Errorf("the upgrade was asked for %d times, want %d", n, tt.asks)
			}
		})
	}
}

// interrupted runs a command that a person interrupts during a request, after its earlier answers.
func (h *fakeHub) interrupted(t *testing.T, method, path string, args ...string) result {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	h.on(method, path, append(h.answers[method+" "+path], func(_ http.ResponseWriter, r *http.Request) {
		interrupt()
		<-r.Context().Done()
	})...)
	var out, errs strings.Builder
	code := run(ctx, append([]string{"--address", h.address}, args...), &out, &errs, hurried())
	return result{code, out.String(), errs.String()}
}

// The hub has begun to answer: it may have done what was asked.
func TestAnInterruptedAnswer(t *testing.T) {
	h, ctx := newFakeHub(t), t.Context()
	ctx, interrupt := context.WithCancel(ctx)
	h.on("GET", "/pods", func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("{"))
		w.(http.Flusher).Flush() //nolint:forcetypeassert // net/http's
		interrupt()
		<-r.Context().Done()
	})
	var out, errs strings.Builder
	if code := run(ctx, []string{"--address", h.address, "pods"}, &out, &errs, hurried()); code != cli.Undone {
		t.Errorf("exit code %d, want %d: %s", code, cli.Undone, errs.String())
	}
}

func TestAnInterruptedUpgrade(t *testing.T) {
	hub := func() *fakeHub {
		return newFakeHub(t).on("POST", pullOf, answersWith(200, "asked")).on("POST", upgradeOf, answersWith(202, queuedText)).on("GET", "/pods", podList(old()))
	}
	h := hub()
	h.interrupted(t, "GET", watchOf, "upgrade", "shop/web-1").is(t, cli.Undone, "asked\n",
		"error: interrupted: the hub has not said how far it is. The hub goes on with it; to end that: edgehubctl pull --cancel shop/web-1. The upgrade was not requested\n")
	if h.count("POST "+upgradeOf) > 0 {
		t.Error("the pod was upgraded all the same")
	}
	hub().interrupted(t, "GET", api.Upgrades, "upgrade", "shop/web-1", "--no-pull", "--wait").is(t, cli.Undone, queuedText+"\n",
		"error: interrupted: waiting for the hub. The upgrade goes on; edgehubctl pods shows the pod\n")
	hub().on("GET", api.Upgrades, upgradeList(anUpgrade(api.WaitingForCloud))).
		interrupted(t, "GET", api.Upgrades, "upgrade", "shop/web-1", "--no-pull", "--wait").is(t, cli.Undone, queuedText+"\n",
		"waiting for pod shop/web-1: queued\nerror: interrupted: waiting for pod shop/web-1: queued. The upgrade goes on; edgehubctl pods shows the pod\n")
	hub().interrupted(t, "POST", rollbackOf, "rollback", "shop/web-1").is(t, cli.Undone, "", "error: context canceled; the hub may carry out POST "+rollbackOf+" all the same\n")
}

func TestAnUpgradeForLater(t *testing.T) {
	const scheduled = "Upgrade of pod shop/web-1 scheduled for 2099-11-22T03:00:00+01:00"
	tonight := time.Now().Add(3 * time.Hour).Format(time.RFC3339)
	tests := map[string]struct {
		args  []string
		query url.Values
	}{
		"a time":            {[]string{"--at=" + tonight}, url.Values{"at": {tonight}}},
		"a window":          {[]string{"--window=22:00-05:00"}, url.Values{"window": {"22:00-05:00"}}},
		"a window and zone": {[]string{"--window=02:00-05:00", "--tz=Europe/Berlin"}, url.Values{"window": {"02:00-05:00"}, "tz": {"Europe/Berlin"}}},
		"in spite of all":   {[]string{"--force", "--no-pull"}, url.Values{"force": {"true"}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path, args := upgradeOf+"?"+tt.query.Encode(), append([]string{"upgrade", "shop/web-1"}, tt.args...)
			queueing(t).on("POST", path, answersWith(202, scheduled)).edgehubctl(t, args...).is(t, cli.Done, scheduled+"\n", "")
			queueing(t).on("POST", path, answersWith(400, "nothing was upgraded: no such window")).edgehubctl(t, args...).
				is(t, cli.Failed, "", "error: nothing was upgraded: no such window\n")
		})
	}
}

func TestTheNextTimeOfTheClock(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct{ now, at, want string }{
		"later today":                 {"2026-06-28T22:30:00+02:00", "22:31", "2026-06-28T22:31:00+02:00"},
		"now":                         {"2026-06-28T22:30:00+02:00", "22:30", "2026-06-29T22:30:00+02:00"},
		"tomorrow":                    {"2026-06-28T22:30:00+02:00", "03:00", "2026-06-29T03:00:00+02:00"},
		"the last day of a year":      {"2026-12-31T22:30:00+01:00", "03:00", "2027-01-01T03:00:00+01:00"},
		"after a change of the clock": {"2026-03-28T22:30:00+01:00", "03:00", "2026-03-29T03:00:00+02:00"},
		"a time that is left out":     {"2026-03-28T22:30:00+01:00", "02:30", "2026-03-29T03:30:00+02:00"},
		"twice, before the first":     {"2026-10-25T02:15:00+02:00", "02:30", "2026-10-25T02:30:00+02:00"},
		"twice, before the second":    {"2026-10-25T02:45:00+02:00", "02:30", "2026-10-25T02:30:00+01:00"},
		"twice, after both":           {"2026-10-25T02:45:00+01:00", "02:30", "2026-10-26T02:30:00+01:00"},
		"RFC 3339":                    {"2026-06-28T22:30:00+02:00", "2026-06-29T01:00:00Z", "2026-06-29T01:00:00Z"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			now, err := time.Parse(time.RFC3339, tt.now)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := (when{at: tt.at}).time(now.In(berlin)); err != nil || got.Format(time.RFC3339) != tt.want {
				t.Errorf("got %v, %v, want %s", got, err, tt.want)
			}
		})
	}
}

// An upgrade that waits, for the cloud or its time, is waited for to its end.
func TestAnUpgradeThatWaitsIsWaitedFor(t *testing.T) {
	const running = "Pod shop/web-2 of revision 7c9b is Ready, after "
	hub := func(states ...http.HandlerFunc) *fakeHub {
		return newFakeHub(t).on("GET", api.Upgrades, states...).on("POST", upgradeOf, answersWith(202, queuedText)).
			on("GET", "/pods", podList(old()), podList(pod("shop", "web-2", newRevision)))
	}
	queued, others := anUpgrade(api.WaitingForCloud, because("it starts\nwhen")), anUpgrade(api.Done, func(u *api.Upgrade) { u.UID = "x" })
	earlier := anUpgrade(api.Dropped, because("long ago"))
	const waited = "waiting for pod shop/web-1: queued, it starts when\n"
	tests := map[string]struct {
		end  api.Upgrade
		code int
		out  string
		err  string
	}{
		"it begins":         {anUpgrade(api.Done), cli.Done, running, "waiting for pod shop/web-2 to stay Ready for 60ms\n"},
		"it does not apply": {anUpgrade(api.Dropped, because("the pod is gone")), cli.Failed, "", "error: the upgrade of pod shop/web-1 to revision 7c9b was dropped: the pod is gone\n"},
		"it is cancelled":   {anUpgrade(api.Withdrawn), cli.Failed, "", "error: the upgrade of pod shop/web-1 to revision 7c9b was withdrawn: the hub gives no reason\n"},
		"it is forgotten":   {others, cli.Failed, "", "error: the hub has forgotten the upgrade of pod shop/web-1: edgehubctl queue shows what it knows\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := hub(upgradeList(queued, earlier), answersWith(502, "restarts"), upgradeList(anUpgrade(api.InProgress), others), upgradeList(tt.end))
			h.edgehubctl(t, "upgrade", "shop/web-1", "--no-pull", "--wait").has(t, tt.code, queuedText+"\n"+tt.out,
				waited+"restarts; the upgrade goes on all the same\nwaiting for pod shop/web-1: in progress\n"+tt.err)
		})
	}
}

func TestAllPodsAreUpgraded(t *testing.T) {
	need := needs(corev1.ConditionTrue, newRevision)
	list := podList(pod("shop", "web-1", oldRevision, need), pod("shop", "web-2", oldRevision, need), pod("shop", "fine", newRevision), pod("shop", "ending", oldRevision, need, deleting), pod("kube-system", "proxy", oldRevision, need))
	path := api.UpgradePath
	h := func(second int) *fakeHub {
		return newFakeHub(t).on("GET", "/pods", list).on("POST", path("kube-system", "proxy"), answersWith(200, "one")).
			on("POST", path("shop", "web-1"), answersWith(second, "two")).on("POST", path("shop", "web-2"), answersWith(202, "three"))
	}
	h(200).edgehubctl(t, "upgrade", "--all", "--no-pull").is(t, cli.Done, "one\ntwo\nthree\n3 pods upgraded or waiting.\n", "")
	h(200).edgehubctl(t, "upgrade", "--all", "--no-pull", "-n", "shop").is(t, cli.Done, "two\nthree\n2 pods upgraded or waiting.\n", "")
	h(409).edgehubctl(t, "upgrade", "--all", "--no-pull").is(t, cli.NotNow, "one\nthree\n", "pod shop/web-1: two\nerror: 2 pods upgraded or waiting, 1 failed: see above\n")
	h(409).on("POST", path("kube-system", "proxy"), answersWith(500, "no")).edgehubctl(t, "upgrade", "--all", "--no-pull").
		is(t, cli.Failed, "three\n", "pod kube-system/proxy: no\npod shop/web-1: two\nerror: 1 pod upgraded or waiting, 2 failed: see above\n")
	h(200).edgehubctl(t, "upgrade", "--all", "-n", "none").is(t, cli.Done, "No pod of this node needs an upgrade.\n", "")

	slow := h(200)
	slow.interrupted(t, "POST", api.ImagePullPath("kube-system", "proxy"), "upgrade", "--all").
		has(t, cli.Undone, "", "error: interrupted: 0 done, 1 failed. The other pods are as they were\n")
	if slow.count("POST "+path("shop", "web-1")) > 0 {
		t.Error("another pod was upgraded")
	}
}
