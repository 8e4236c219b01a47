package progress

import (
	"bytes"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/api"
)

func annotate(pod *corev1.Pod, key, value string) {
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[key] = value
}

func holdFor(since, length time.Duration, reason string) string {
	at := start.Add(since)
	return api.PodHold{Since: metav1.NewTime(at), Until: metav1.NewTime(at.Add(length)), Reason: reason}.Encode()
}

func mark(pod *corev1.Pod, t corev1.PodConditionType, status corev1.ConditionStatus, message string) {
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: t, Status: status, Message: message})
}

// decided has a node whose owner holds its pod, two where an upgrade waits for its time, one that was
// rolled back, and one whose rollback is refused. The last has just asked for one.
func decided(strategy string) *world {
	w := newWorld(strategy, nil).fleet("a", 6, rollout.WaitingForOwner, "").because(rollout.ReasonWaitingForOwners, "")
	annotate(w.pods[0], api.HoldAnnotation, holdFor(-time.Hour, 3*time.Hour, "unloading"))
	annotate(w.pods[1], api.WaitingAnnotation, api.Waiting{Revision: newRevision, At: &metav1.Time{Time: start.Add(9 * time.Hour)}}.Encode())
	annotate(w.pods[2], api.WaitingAnnotation, api.Waiting{Revision: newRevision, Window: "02:00-05:00", TimeZone: "Europe/Berlin"}.Encode())
	mark(w.pods[3], api.RolledBackCondition, corev1.ConditionTrue, "")
	mark(w.pods[4], api.RolledBackCondition, corev1.ConditionFalse, "more than images differs")
	mark(w.pods[5], api.RolledBackCondition, corev1.ConditionUnknown, api.Message("old"))
	return w
}

func TestStatusShowsWhichPodsWereUpgradedOffline(t *testing.T) {
	const silent = "its node has not reported what became of the upgrade"
	w := newWorld("OTA", nil).fleet("a", 7, rollout.WaitingForOwner, "").because(rollout.ReasonWaitingForOwners, "")
	report := func(image string) string {
		return api.OfflineUpgrade{Revision: newRevision, From: "old", Images: []api.TargetImage{{Name: "app", Image: image}}, Since: metav1.NewTime(start)}.Encode()
	}
	mark(w.pods[0], api.UpgradedOfflineCondition, corev1.ConditionTrue, "")
	annotate(w.pods[0], api.UpgradedOfflineAnnotation, report("shop/app:2"))
	mark(w.pods[1], api.UpgradedOfflineCondition, corev1.ConditionUnknown, "")
	annotate(w.pods[2], api.UpgradedOfflineAnnotation, report("\x1b[31m"))
	mark(w.pods[2], api.ReconciledCondition, corev1.ConditionFalse, "denied\nby a policy")
	mark(w.pods[3], api.UpgradedOfflineCondition, corev1.ConditionTrue, "") // reconciled
	// The node does not report what it runs, or whether that works.
	for i, status := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionUnknown} {
		mark(w.pods[4+i], api.UpgradedOfflineCondition, status, "")
		mark(w.pods[4+i], api.ReconciledCondition, corev1.ConditionFalse, silent)
	}
	annotate(w.pods[6], api.UpgradedOfflineAnnotation, "{")
	mark(w.pods[6], api.ReconciledCondition, corev1.ConditionFalse, "the annotation is invalid")
	r := w.evaluate(t)
	if on := r.text(200); !strings.Contains(on, "\n    offline          6  a1 since 2026-01-01T10:00:00Z: shop/app:2, a2 on probation, a3 since 2026-01-01T10:00:00Z: \"\\x1b[31m\", a5, a6 and 1 more\n") {
		t.Errorf("got\n%s", on)
	}
	for i, want := range []string{
		"upgraded offline since 2026-01-01T10:00:00Z: shop/app:2", "upgraded offline on probation",
		`upgraded offline since 2026-01-01T10:00:00Z: "\x1b[31m", the cloud cannot follow: "denied\nby a policy"`, "",
		`upgraded offline, the cloud cannot follow: "` + silent + `"`, `upgraded offline, the cloud cannot follow: "` + silent + `"`,
		`upgraded offline, the cloud cannot follow: "the annotation is invalid"`,
	} {
		if got := r.Nodes[i].reasons(); got != want {
			t.Errorf("node %s: got %q, want %q", r.Nodes[i].Node, got, want)
		}
	}
	var out bytes.Buffer
	jsonView(&out, true)(r)
	if want := `"upgradedOffline":{"since":"2026-01-01T10:00:00Z","revision":"7c9b","images":[{"name":"app","image":"shop/app:2"}]}`; !strings.Contains(out.String(), want) {
		t.Errorf("the JSON lacks %s: %s", want, out.String())
	}
}

func TestStatusShowsWhatOwnersDecided(t *testing.T) {
	r := decided(daemonset.OTA.String()).evaluate(t)
	want := strings.TrimPrefix(`
daemonset.apps/web in shop: OTA to revision 7c9b
updated          0  of 6
unavailable      0
for owners       6  a1, a2, a3, a4, a5 and 1 more
held             0
on hold          1  a1 until 2026-01-01T12:00:00Z ("unloading")
scheduled        2  a2 at 2026-01-01T19:00:00Z and 1 more
rolled back      1  a4
waiting: the owner of a node upgrades its pod, by a POST to the node's own API; nothing is done from here
`, "\n")
	if got := r.text(0); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for i, want := range []string{
		`on hold until 2026-01-01T12:00:00Z ("unloading")`, "scheduled at 2026-01-01T19:00:00Z", "scheduled within 02:00-05:00 Europe/Berlin", "rolled back",
		`its rollback is refused: "more than images differs"`, "",
	} {
		if got := r.Nodes[i].reasons(); got != want {
			t.Errorf("node %s: got %q, want %q", r.Nodes[i].Node, got, want)
		}
	}
	if on := r.text(120); !strings.Contains(on, "\n    scheduled        2  a2 at 2026-01-01T19:00:00Z, a3 within 02:00-05:00 Europe/Berlin\n") {
		t.Errorf("got\n%s\nwant the lines of owners below the others, and as long as the terminal is wide", on)
	}
}

// Scripts depend on these names.
func TestJSONHasWhatOwnersDecided(t *testing.T) {
	var out bytes.Buffer
	jsonView(&out, true)(decided("OTA").evaluate(t))
	for _, want := range []string{
		`"heldUntil":"2026-01-01T12:00:00Z","holdReason":"unloading"`, `"at":"2026-01-01T19:00:00Z"`,
		`"waiting":{"revision":"7c9b","requested":null,"window":"02:00-05:00","tz":"Europe/Berlin"}`,
		`"rolledBack":true`, `"rollbackRefused":"more than images differs"`,
	} {
		if strings.Count(out.String(), want) != 1 {
			t.Errorf("%s is not in\n%s", want, out.String())
		}
	}
}

// Whoever writes to a pod's status must not write lines of this text, nor fill the screen.
func TestTextsOfANodeAreQuoted(t *testing.T) {
	w := newWorld("OTA", nil).fleet("a", 1, rollout.WaitingForOwner, "").because(rollout.ReasonWaitingForOwners, "")
	long := "\nupdated 1 of 1\x1b[2J" + strings.Repeat("x", 10_000)
	annotate(w.pods[0], api.HoldAnnotation, holdFor(-time.Hour, 3*time.Hour, long))
	annotate(w.pods[0], api.WaitingAnnotation, api.Waiting{Revision: long, Window: long, TimeZone: long}.Encode())
	mark(w.pods[0], api.RolledBackCondition, corev1.ConditionFalse, long)
	r := w.evaluate(t)
	text := r.text(0) + r.table()
	if strings.ContainsAny(text, "\x1b") || strings.Count(text, "\n") != 10 || len(text) > 2000 {
		t.Errorf("got %d bytes, %d lines\n%s", len(text), strings.Count(text, "\n"), text)
	}
	for _, s := range []string{r.Nodes[0].HoldReason, r.Nodes[0].Waiting.Revision, r.Nodes[0].Waiting.Window, r.Nodes[0].Waiting.TimeZone, r.Nodes[0].RollbackRefused} {
		if len(s) > api.MaxHoldReason+3 {
			t.Errorf("JSON has %d bytes that a node wrote", len(s))
		}
	}
}

func TestALineOfOwnersFitsTheTerminal(t *testing.T) {
	list := []string{"edge01", "edge02", "edge03", "edge04"}
	for width, want := range map[int]string{
		0: "edge01 and 3 more", 24: "edge01 and 3 more", 25: "edge01, edge02 and 2 more", 29: "edge01, edge02 and 2 more",
		30: "edge01, edge02, edge03, edge04", 80: "edge01, edge02, edge03, edge04",
	} {
		if got := fitting(list, width); got != want {
			t.Errorf("%d columns: got %q, want %q", width, got, want)
		}
	}
	if got := fitting(list[:1], 3); got != "edge01" {
		t.Errorf("got %q", got)
	}
}

// The controller's reason has the hold already.
func TestAHoldIsToldOnce(t *testing.T) {
	const reason = "held by its owner until 2026-01-01T11:00:00Z, at most until 2026-01-02T09:00:00Z"
	w := newWorld(advanced, nil).fleet("b", 1, rollout.HeldByOwner, reason).because(rollout.ReasonHeldByOwner, "")
	annotate(w.pods[0], api.HoldAnnotation, holdFor(-time.Hour, 2*time.Hour, "charging"))
	r := w.evaluate(t)
	text := r.text(0)
	for _, want := range []string{"held             1  by the owners of the nodes\n", "on hold          1  b1 until 2026-01-01T11:00:00Z (\"charging\")\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("got\n%s\nwant %q in it", text, want)
		}
	}
	if got := r.Nodes[0].reasons(); got != reason {
		t.Errorf("got %q", got)
	}
}

func TestHoldsThatAreOverAreNotShown(t *testing.T) {
	tests := map[string]struct {
		annotations map[string]string
		hold        string
		until       string // "" if it is not held
	}{
		"it is over":                       {nil, holdFor(-2*time.Hour, time.Hour, ""), ""},
		"it lasts longer than the maximum": {map[string]string{api.MaxHoldAnnotation: "2h"}, holdFor(-time.Hour, 9*time.Hour, ""), "2026-01-01T11:00:00Z"},
		"the maximum has passed":           {map[string]string{api.MaxHoldAnnotation: "1h"}, holdFor(-time.Hour, 9*time.Hour, ""), ""},
		"holds are forbidden":              {map[string]string{api.MaxHoldAnnotation: "0s"}, holdFor(0, time.Hour, ""), ""},
		"it begins in the future":          {nil, holdFor(5*time.Hour, 2*time.Hour, ""), "2026-01-01T12:00:00Z"},
		"it cannot be read":                {nil, "{", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld("OTA", tt.annotations).fleet("a", 1, rollout.WaitingForOwner, "")
			annotate(w.pods[0], api.HoldAnnotation, tt.hold)
			got := ""
			if until := w.evaluate(t).Nodes[0].HeldUntil; until != nil {
				got = until.UTC().Format(time.RFC3339)
			}
			if got != tt.until {
				t.Errorf("got a hold until %q, want %q", got, tt.until)
			}
		})
	}
}

func TestTheTableCountsWhatOwnersDecided(t *testing.T) {
	want := strings.TrimPrefix(`
NAMESPACE   NAME     STATE     UPDATED   UNAVAILABLE   OWNERS
shop        ds/web   waiting   0/6       0             1 on hold, 2 scheduled, 1 rolled back
`, "\n")
	if got := Table([]*Report{decided("OTA").evaluate(t)}); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
