package main

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/view"
	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/ota/api"
)

const crashed = "in place, without the cloud; the earlier version runs again: container web has ended 3 times; it is not tried again without the cloud"

// anInPlace is an upgrade in place from web:v1 to web:v2.
func anInPlace(state api.UpgradeState, inPlace api.InPlaceState, message string) api.Upgrade {
	return anUpgrade(state, because(message), func(u *api.Upgrade) {
		u.Requested = time.Date(2026, 1, 2, 15, 4, 0, 0, time.Local)
		u.InPlace = &api.InPlace{State: inPlace, Images: []api.ImageChange{{Name: "web", From: "registry.example.com/shop/web:v1", To: "registry.example.com/shop/web:v2"}}}
		if inPlace == api.InProbation {
			u.InPlace.Until = new(u.Requested.Add(3 * time.Minute))
		}
	})
}

// states of an upgrade in place as the hub shows them.
var (
	inProbation = anInPlace(api.InProgress, api.InProbation, "in place, without the cloud: kubelet replaces the containers")
	passed      = anInPlace(api.Done, api.Passed, "in place, without the cloud, which has yet to follow")
	undoing     = anInPlace(api.Dropped, api.Undoing, "in place, without the cloud; the earlier version is started again: the owner went back to the earlier version")
	undone      = anInPlace(api.Dropped, api.Undone, crashed)
)

// inPlacePod is the pod as GET /pods shows it: the images of its spec are the cloud's.
func inPlacePod(change ...func(*corev1.Pod)) corev1.Pod {
	target := api.Target{Revision: newRevision, Containers: []api.TargetImage{{Name: "web", Image: "registry.example.com/shop/web:v2"}}}
	return old(append([]func(*corev1.Pod){annotated(target.Encode())}, change...)...)
}

// runsNew has the pod run the new revision, of which the cloud does not know.
func runsNew(p *corev1.Pod) {
	condition(api.UpgradedOfflineCondition, corev1.ConditionTrue, api.ReasonPassed, newRevision, 0)(p)
	p.Annotations[api.UpgradedOfflineAnnotation] = api.OfflineUpgrade{
		Revision: newRevision, From: oldRevision, Images: []api.TargetImage{{Name: "web", Image: "registry.example.com/shop/web:v2"}},
	}.Encode()
}

func TestUpgradesInPlaceAreShown(t *testing.T) {
	for name, tt := range map[string]struct {
		pod     corev1.Pod
		upgrade api.Upgrade
		pods    string // UPGRADE, and what follows on the table
		queue   string // STATE and MESSAGE
	}{
		"in probation": {inPlacePod(), inProbation, `in progress, web:v1 -> v2

shop/web-1 was upgraded to 7c9b (web:v1 -> v2) at 01-02 15:04, in place, without
the cloud: kubelet replaces the containers; by 01-02 15:07 it is known whether
the new version works.
`, "in progress   " + inProbation.Message + "; by 01-02 15:07 it is known whether the new version works\n"},
		"kept": {inPlacePod(runsNew), passed, `upgraded offline, no

shop/web-1 was upgraded to 7c9b (web:v1 -> v2) at 01-02 15:04, in place, without
the cloud, which has yet to follow.
`, "done    " + passed.Message + "\n"},
		"undone": {inPlacePod(), undone, `undone, web:v1 -> v2

shop/web-1 was upgraded to 7c9b (web:v1 -> v2) at 01-02 15:04, in place, without
the cloud; the earlier version runs again: container web has ended 3 times; it
is not tried again without the cloud.
`, "undone   " + crashed + "\n"},
		"the cloud has followed": {pod("shop", "web-1", newRevision, needs(corev1.ConditionFalse, newRevision)),
			anInPlace(api.Done, api.Reconciled, "in place, without the cloud, which has followed"), "no\n", "done    in place, without the cloud, which has followed\n"},
	} {
		t.Run(name, func(t *testing.T) {
			h := queueing(t, tt.upgrade).on("GET", "/pods", podList(tt.pod)).
				on("GET", historyOf, sends(api.History{Items: []api.Revision{{Revision: "5d8f", Images: []string{"web:v1"}}}, Upgrade: &tt.upgrade}))
			if got := h.edgehubctl(t, "pods"); !strings.HasSuffix(got.out, "shop/web-1   1/1     Running   0          "+tt.pods) {
				t.Errorf("pods:\n%s", got.out)
			}
			h.edgehubctl(t, "queue", "-o", "wide").has(t, cli.Done, "7c9b       "+tt.queue, "")
			if got := h.edgehubctl(t, "history", "shop/web-1"); !strings.Contains(strings.ReplaceAll(got.out, "\n", " "), "(web:v1 -> v2) at 01-02 15:04, "+tt.upgrade.Message) {
				t.Errorf("history:\n%s", got.out)
			}
			h.edgehubctl(t, "history", "shop/web-1", "-o", "json").has(t, cli.Done, `"state": "`+string(tt.upgrade.InPlace.State)+`"`, "")
		})
	}
	running := inPlacePod(runsNew)
	r := view.PodOf(&running, nil)
	if *r.NeedsUpgrade || r.Revision != newRevision || r.Images[0].Now != "registry.example.com/shop/web:v2" {
		t.Errorf("a pod that runs what the cloud does not have: %+v", r)
	}
	newFakeHub(t).on("GET", "/pods", podList(running)).edgehubctl(t, "upgrade", "--all").is(t, cli.Done, "No pod of this node needs an upgrade.\n", "")
}

func TestUpgradesInPlaceAreWaitedFor(t *testing.T) {
	answer := started + api.OfflineInPlace
	const waited = "waiting for pod shop/web-1: in progress, in place, without the cloud: kubelet replaces the containers\n"
	queuedBefore := anUpgrade(api.Withdrawn)
	for name, tt := range map[string]struct {
		last []api.Upgrade // at each look
		pod  corev1.Pod    // at the end
		code int
		out  string
		err  string
	}{
		"it passes":          {[]api.Upgrade{inProbation, passed}, inPlacePod(runsNew), cli.Done, "Pod shop/web-1 of revision 7c9b is Ready, after ", waited},
		"the cloud followed": {[]api.Upgrade{anInPlace(api.Done, api.Reconciled, "")}, pod("shop", "web-1", newRevision), cli.Done, "Pod shop/web-1 of revision 7c9b is Ready, after ", ""},
		"it is undone":       {[]api.Upgrade{inProbation, undone}, inPlacePod(), cli.Failed, "", waited + "error: the upgrade of pod shop/web-1 to revision 7c9b was undone: " + crashed + "\n"},
		"it is deleted":      {[]api.Upgrade{passed}, inPlacePod(deleting), cli.Failed, "", "error: pod shop/web-1 was upgraded in place, and then deleted\n"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newFakeHub(t).on("GET", api.Readyz, answersWith(200, awayText)).on("POST", upgradeOf, answersWith(200, answer)).
				on("GET", "/pods", podList(inPlacePod()), podList(tt.pod))
			for _, u := range tt.last {
				h.answers["GET "+api.Upgrades] = append(h.answers["GET "+api.Upgrades], upgradeList(queuedBefore, u))
			}
			h.edgehubctl(t, "upgrade", "shop/web-1", "--wait").has(t, tt.code, answer+"\n"+tt.out, tt.err)
		})
	}
	h := newFakeHub(t).on("POST", upgradeOf, answersWith(200, answer)).on("GET", "/pods", podList(inPlacePod()), podList(inPlacePod(runsNew))).on("GET", api.Upgrades, upgradeList(passed))
	h.edgehubctl(t, "upgrade", "--no-pull", "shop/web-1", "--wait", "-o", "json").has(t, cli.Done, `"successor": "web-1",
  "revision": "7c9b"`, "")

	// The way back. kubelet stops the new containers first, which may take a while.
	const back = "Start rolling back pod shop/web-1 (in place)"
	h = newFakeHub(t).on("POST", rollbackOf, answersWith(200, back)).on("GET", "/pods", podList(inPlacePod(runsNew)), podList(inPlacePod())).
		on("GET", api.Upgrades, upgradeList(undoing), upgradeList(undone))
	h.edgehubctl(t, "rollback", "shop/web-1", "--wait").has(t, cli.Done, back+"\nPod shop/web-1 of revision 5d8f is Ready, after ",
		"waiting for pod shop/web-1: undone, "+undoing.Message+"\nwaiting for pod shop/web-1 to stay Ready for 60ms\n")
}
