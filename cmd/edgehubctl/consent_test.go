package main

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/view"
	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/ota/api"
)

const (
	rollbackOf = "/openyurt.io/v1/namespaces/shop/pods/web-1/rollback"
	historyOf  = "/openyurt.io/v1/namespaces/shop/pods/web-1/history"

	rollbackText = "Rollback of pod shop/web-1 to revision 5d8f requested"
)

func isRollback(u *api.Upgrade) { u.Action, u.Revision = api.RollbackAction, oldRevision }

// rolling is pod web-1 in a rollback from web:v2 to web:v1.
func rolling(revision, image, containerID string, change ...func(*corev1.Pod)) corev1.Pod {
	return pod("shop", "web-1", revision, append([]func(*corev1.Pod){func(p *corev1.Pod) {
		p.Spec.Containers[0].Image = image
		p.Status.ContainerStatuses[0].ContainerID = "containerd://" + containerID
	}}, change...)...)
}

// sidecar adds a native sidecar to a pod.
func sidecar(p corev1.Pod, image, containerID string) corev1.Pod {
	p = *p.DeepCopy()
	p.Spec.InitContainers = []corev1.Container{{Name: "log", Image: image, RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
	p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "log", ContainerID: "containerd://" + containerID}}
	return p
}

// The pod stays the same, and is Ready before its containers restart.
func TestARollbackIsWaitedFor(t *testing.T) {
	before, patched := rolling(newRevision, "web:v2", "1"), rolling(oldRevision, "web:v1", "1")
	crashing := func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].RestartCount = 4
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	}
	begun, done := anUpgrade(api.InProgress, isRollback), anUpgrade(api.Done, isRollback)
	const waited = "waiting for pod shop/web-1: in progress\n"
	tests := map[string]struct {
		pods []corev1.Pod // each is what the hub shows at one look
		code int
		out  string
		err  string
	}{
		"it runs": {[]corev1.Pod{before, before, patched, rolling(oldRevision, "web:v1", "2")}, cli.Done, "Pod shop/web-1 of revision 5d8f is Ready, after ",
			waited + `waiting for pod shop/web-1 to be of revision 5d8f: it is of 7c9b
waiting for container web of pod shop/web-1 to restart
waiting for pod shop/web-1 to stay Ready for 60ms
`},
		"what runs now crashes": {[]corev1.Pod{rolling(newRevision, "web:v2", "1", crashing), rolling(oldRevision, "web:v1", "1", crashing), rolling(oldRevision, "web:v1", "2")}, cli.Done,
			"Pod shop/web-1 of revision 5d8f is Ready, after ", waited + "waiting for container web of pod shop/web-1 to restart, waits: CrashLoopBackOff\nwaiting for pod shop/web-1 to stay Ready"},
		"it crashes": {[]corev1.Pod{before, rolling(oldRevision, "web:v1", "2", crashing)}, cli.Broken, "",
			"kubelet goes on trying; edgehubctl upgrade shop/web-1 replaces it by a pod of the newest revision\n"},
		"the pod is deleted": {[]corev1.Pod{before, pod("shop", "web-2", newRevision)}, cli.Failed, "",
			"error: pod shop/web-1 was deleted during its rollback: the cloud makes another one, of the newest revision\n"},
		"a native sidecar restarts": {[]corev1.Pod{sidecar(before, "log:v2", "1"), sidecar(patched, "log:v1", "1"), sidecar(rolling(oldRevision, "web:v1", "2"), "log:v1", "1"),
			sidecar(rolling(oldRevision, "web:v1", "2"), "log:v1", "2")}, cli.Done, "Pod shop/web-1 of revision 5d8f is Ready, after ",
			waited + "waiting for container log of pod shop/web-1 to restart\nwaiting for pod shop/web-1 to stay Ready for 60ms\n"},
		"only the revision differs": {[]corev1.Pod{rolling(newRevision, "web:v1", "1"), patched}, cli.Done, "Pod shop/web-1 of revision 5d8f is Ready", waited},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := newFakeHub(t).on("POST", rollbackOf, answersWith(202, rollbackText)).on("GET", api.Upgrades, upgradeList(begun), upgradeList(done))
			for _, p := range tt.pods {
				h.answers["GET /pods"] = append(h.answers["GET /pods"], podList(p))
			}
			h.edgehubctl(t, "rollback", "shop/web-1", "--wait").has(t, tt.code, rollbackText+"\n"+tt.out, tt.err)
		})
	}
	const refused = "pod shop/web-1 was not rolled back to revision 5d8f: more than images differs"
	newFakeHub(t).on("POST", rollbackOf, answersWith(409, refused)).edgehubctl(t, "rollback", "shop/web-1").is(t, cli.NotNow, "", "error: "+refused+"\n")
	h := newFakeHub(t).on("POST", rollbackOf, answersWith(202, rollbackText)).on("GET", "/pods", podList(before)).
		on("GET", api.Upgrades, upgradeList(anUpgrade(api.Dropped, isRollback, because("more than images differs"))))
	h.edgehubctl(t, "rollback", "shop/web-1", "--wait").is(t, cli.Failed, rollbackText+"\n", "error: the rollback of pod shop/web-1 to revision 5d8f was dropped: more than images differs\n")
	h.on("GET", api.Upgrades, upgradeList(done)).on("GET", "/pods", podList(before), podList(rolling(oldRevision, "web:v1", "2"))).
		edgehubctl(t, "rollback", "shop/web-1", "--wait", "-o", "json").has(t, cli.Done, `"successor": "web-1"`, "to stay Ready")
	h.on("GET", "/pods", podList()).edgehubctl(t, "rollback", "shop/web-1", "--wait").has(t, cli.Failed, rollbackText, "was not among the node's pods before its rollback")
}

func TestTheQueueAndTheHistory(t *testing.T) {
	next := time.Date(2026, 1, 2, 3, 0, 0, 0, time.Local)
	h := queueing(t, anUpgrade(api.WaitingForCloud), anUpgrade(api.Scheduled, func(u *api.Upgrade) { u.Namespace, u.Next = "media", &next }),
		anUpgrade(api.Dropped, isRollback, because("more than images differs\nshop/evil   \x1b[2J between the revisions: the admin can roll back all"))).
		on("GET", historyOf, sends(api.History{Items: []api.Revision{
			{Revision: newRevision, Since: time.Now().Add(-3 * time.Hour), Current: true, Images: []string{"web:v2", "log:v1"}, Retained: true},
			{Revision: oldRevision, Since: time.Now().Add(-50 * time.Hour), Images: []string{"registry.example.com/with/a/long/name/web:v1"}}}}))
	got := h.edgehubctl(t, "queue")
	got.is(t, cli.Done, `POD   ACTION     REVISION   STATE                   MESSAGE
shop/web-1
      Upgrade    7c9b       queued                  -
media/web-1
      Upgrade    7c9b       scheduled 01-02 03:00   -
shop/web-1
      Rollback   5d8f       dropped                 more than images differs
                                                    shop/evil \u001b[2J between the
                                                    revisions: the admin can
                                                    roll back all
`, "")
	if n := cli.Columns(got.out); n > 84 { // what is escaped is wider by a little
		t.Errorf("it has %d columns", n)
	}
	h.edgehubctl(t, "queue", "-n", "media", "-o", "json").has(t, cli.Done, `"state": "Scheduled"`, "")
	h.edgehubctl(t, "queue", "-n", "media").is(t, cli.Done, `POD           ACTION    REVISION   STATE                   MESSAGE
media/web-1   Upgrade   7c9b       scheduled 01-02 03:00   -
`, "")
	queueing(t).edgehubctl(t, "queue").has(t, cli.Done, "No upgrade or rollback waits", "")
	queueing(t).edgehubctl(t, "queue", "-o", "json").is(t, cli.Done, "{\n  \"items\": []\n}\n", "")
	h.edgehubctl(t, "history", "shop/web-1").is(t, cli.Done, `REVISION   SINCE   CURRENT   ON NODE   IMAGES
7c9b       3h      yes       yes       web:v2, log:v1
5d8f       2d2h    no        no        registry.example.com/with/a/long/name/web
                                       :v1
`, "")
	newFakeHub(t).on("GET", historyOf, sends(api.History{Items: []api.Revision{
		{Revision: newRevision, Since: time.Now().Add(-3 * time.Hour), Current: true, Images: []string{"web:v2"}, Retained: true},
		{Revision: oldRevision, Since: time.Now().Add(-50 * time.Hour), Images: []string{"web:v1"}, Retained: true, Blocked: "the cluster does not have that revision any more (revisionHistoryLimit): the admin can roll out that version again"},
	}})).edgehubctl(t, "history", "shop/web-1").is(t, cli.Done, `REVISION   SINCE   CURRENT   ON NODE   IMAGES
7c9b       3h      yes       yes       web:v2
5d8f       2d2h    no        yes       web:v1

shop/web-1 cannot go back to 5d8f: the cluster does not have that revision any
more (revisionHistoryLimit): the admin can roll out that version again.
`, "")
	h.edgehubctl(t, "history", "shop/web-1", "-o", "json").has(t, cli.Done, `"revision": "7c9b"`, "")
	newFakeHub(t).on("GET", historyOf, sends(api.History{})).edgehubctl(t, "history", "shop/web-1").has(t, cli.Done, "no revision of pod shop/web-1 yet", "")
}

func TestPodsShowWhatWaits(t *testing.T) {
	need := needs(corev1.ConditionTrue, newRevision)
	until := time.Now().Add(time.Hour)
	heldUntil := func(t time.Time) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Annotations = map[string]string{api.HoldAnnotation: fmt.Sprintf(`{"since":"2026-01-01T10:00:00Z","until":%q}`, t.UTC().Format(time.RFC3339))}
		}
	}
	rolledBack := func(status corev1.ConditionStatus) func(*corev1.Pod) {
		return condition(api.RolledBackCondition, status, "", oldRevision, 0)
	}
	tests := map[string]struct {
		pod      corev1.Pod
		upgrades []api.Upgrade
		want     string
	}{
		"nothing":             {pod("shop", "web-1", oldRevision, need), nil, ""},
		"a queue":             {pod("shop", "web-1", oldRevision, need), []api.Upgrade{anUpgrade(api.WaitingForCloud)}, "queued"},
		"another pod's":       {pod("shop", "web-2", oldRevision, need), []api.Upgrade{anUpgrade(api.WaitingForCloud)}, ""},
		"a predecessor's":     {pod("shop", "web-1", oldRevision, need), []api.Upgrade{anUpgrade(api.WaitingForCloud, func(u *api.Upgrade) { u.UID = "x" })}, ""},
		"what has ended":      {pod("shop", "web-1", oldRevision, need), []api.Upgrade{anUpgrade(api.Dropped)}, ""},
		"a hold":              {pod("shop", "web-1", oldRevision, need, heldUntil(until)), nil, "held until " + until.Format("01-02 15:04")},
		"a hold of a queue":   {pod("shop", "web-1", oldRevision, need, heldUntil(until)), []api.Upgrade{anUpgrade(api.Held)}, "held until " + until.Format("01-02 15:04")},
		"a hold not yet out":  {pod("shop", "web-1", oldRevision, need), []api.Upgrade{anUpgrade(api.Held)}, "held"},
		"a hold that is over": {pod("shop", "web-1", oldRevision, need, heldUntil(start)), nil, ""},
		"rolled back":         {pod("shop", "web-1", oldRevision, rolledBack(corev1.ConditionTrue)), nil, "rolled back"},
		"refused":             {pod("shop", "web-1", oldRevision, rolledBack(corev1.ConditionFalse)), nil, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := view.PodOf(&tt.pod, nil)
			if r.AddState(&tt.pod, tt.upgrades, time.Now()); r.UpgradeState != tt.want {
				t.Errorf("got %q, want %q", r.UpgradeState, tt.want)
			}
		})
	}
	queueing(t, anUpgrade(api.WaitingForCloud)).on("GET", "/pods", podList(pod("shop", "web-1", oldRevision, need))).
		edgehubctl(t, "pods", "-o", "json").has(t, cli.Done, `"upgradeState": "queued"`, "")
}
