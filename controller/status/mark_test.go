package status

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/edgehub-io/edgehub/controller/podtest"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// marked is pod with m on it since the time before.
func marked(pod *corev1.Pod, m Mark) *corev1.Pod {
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: upgrade.NeedCondition, Status: m.status, Reason: m.reason, Message: m.message, LastTransitionTime: metav1.NewTime(podtest.Before),
	})
	if m.Target != "" {
		pod.Annotations[upgrade.TargetAnnotation] = m.Target
	}
	if m.Policy != "" {
		pod.Annotations[upgrade.PolicyAnnotation] = m.Policy
	}
	return pod
}

func newTarget(hash string) Marker {
	return NewMarker(imagesOf(hash), upgrade.DefaultPolicy(), nil, free)
}

// free says that every node takes the next pod.
func free(*corev1.Pod) string { return "" }

func imagesOf(hash string) upgrade.Target {
	return upgrade.Target{Revision: hash, Containers: []upgrade.Image{{Name: "app", Image: "app:" + hash}}}
}

// patched applies patch the way an apiserver does.
func patched(t *testing.T, pod *corev1.Pod, patch []byte) *corev1.Pod {
	t.Helper()
	original, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := strategicpatch.StrategicMergePatch(original, patch, &corev1.Pod{})
	if err != nil {
		t.Fatalf("patch %s: %v", patch, err)
	}
	out := &corev1.Pod{}
	if err := json.Unmarshal(merged, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestPatchLeadsToTheWantedMark(t *testing.T) {
	toNew, toNewer := newTarget("new"), newTarget("newer")
	needs, fine := toNew.markFor(podtest.PodAt("old")), toNew.markFor(podtest.PodAt("new"))
	otherReason := needs
	otherReason.reason = "Other"
	noTarget := needs
	noTarget.Target = ""
	staleTarget := fine
	staleTarget.Target = needs.Target
	tests := map[string]struct {
		pod  *corev1.Pod
		want Mark
		// flips: lastTransitionTime is now; else it stays.
		flips bool
	}{
		"a new pod at the target":                 {podtest.PodAt("new"), fine, true},
		"a new pod at an old revision":            {podtest.PodAt("old"), needs, true},
		"a pod without a hash counts as old":      {podtest.PodAt(""), needs, true},
		"it needed none, and does now":            {marked(podtest.PodAt("old"), fine), needs, true},
		"it needed one, and after an undo not":    {marked(podtest.PodAt("new"), needs), fine, true},
		"it still needs one, to a newer revision": {marked(podtest.PodAt("old"), needs), toNewer.markFor(podtest.PodAt("old")), false},
		"somebody changed the reason":             {marked(podtest.PodAt("old"), otherReason), needs, false},
		"somebody removed the annotation":         {marked(podtest.PodAt("old"), noTarget), needs, false},
		"an annotation was left behind":           {marked(podtest.PodAt("new"), staleTarget), fine, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			patch := PatchMark(tt.want, tt.pod, podtest.Now)
			if patch == nil {
				t.Fatal("got no patch, want one")
			}
			got := patched(t, tt.pod, patch)
			if m := MarkOf(got); m != tt.want {
				t.Errorf("patch %s\ngot  %+v\nwant %+v", patch, m, tt.want)
			}
			if again := PatchMark(tt.want, got, podtest.Now); again != nil {
				t.Errorf("got a second patch %s, want none", again)
			}
			since := podtest.Before
			if tt.flips {
				since = podtest.Now
			}
			if c := upgrade.Condition(got, upgrade.NeedCondition); !c.LastTransitionTime.Time.Equal(since) {
				t.Errorf("got lastTransitionTime %v, want %v", c.LastTransitionTime, since)
			}
			checkRestUntouched(t, got)
		})
	}
}

func TestTheZeroMarkRemovesEverything(t *testing.T) {
	m := NewMarker(imagesOf("new"), upgrade.Policy{}, nil, free)
	for name, pod := range map[string]*corev1.Pod{
		"needs an upgrade": marked(podtest.PodAt("old"), m.markFor(podtest.PodAt("old"))),
		"up to date":       marked(podtest.PodAt("new"), m.markFor(podtest.PodAt("new"))),
	} {
		got := patched(t, pod, PatchMark(Mark{}, pod, podtest.Now))
		if MarkOf(got) != (Mark{}) {
			t.Errorf("%s: got %+v, want no mark", name, MarkOf(got))
		}
		checkRestUntouched(t, got)
	}
	if patch := PatchMark(Mark{}, podtest.PodAt("old"), podtest.Now); patch != nil {
		t.Errorf("got patch %s for a pod without a mark, want none", patch)
	}
}

// checkRestUntouched looks at what belongs to others.
func checkRestUntouched(t *testing.T, got *corev1.Pod) {
	t.Helper()
	ready, image := upgrade.Condition(got, corev1.PodReady), upgrade.Condition(got, upgrade.ImageCondition)
	if ready == nil || ready.Status != corev1.ConditionTrue || image == nil || image.Message != upgrade.Message("new") {
		t.Errorf("conditions of others changed: %+v", got.Status.Conditions)
	}
	if got.Annotations["keep"] != "me" || got.UID != "pod-uid" {
		t.Errorf("metadata of others changed: %+v", got.ObjectMeta)
	}
}

// asking is pod with a target that asks its node to pull the images of the revision with
// this hash.
func asking(pod *corev1.Pod, hash string, since time.Time) *corev1.Pod {
	pod.Annotations[upgrade.TargetAnnotation] = targetEncoder(imagesOf(hash))(since, "")
	return pod
}

func TestPrepullTargetsKeepTheirTime(t *testing.T) {
	m := NewPrepullMarker(imagesOf("new"), upgrade.DefaultPolicy(), nil, free, podtest.Now)
	tests := map[string]struct {
		pod  *corev1.Pod
		want time.Time
	}{
		"a pod without a mark":                      {podtest.PodAt("old"), podtest.Now},
		"a pod whose target has no time":            {marked(podtest.PodAt("old"), newTarget("new").markFor(podtest.PodAt("old"))), podtest.Now},
		"a pod that asks":                           {asking(podtest.PodAt("old"), "new", podtest.Before), podtest.Before},
		"a pod that asks for another revision":      {asking(podtest.PodAt("old"), "between", podtest.Before), podtest.Now},
		"a pod that asks with a time in the future": {asking(podtest.PodAt("old"), "new", podtest.Now.Add(time.Hour)), podtest.Now},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := tt.pod
			if patch := PatchMark(m.markFor(got), got, podtest.Now); patch != nil {
				got = patched(t, got, patch)
			}
			target, ok, err := upgrade.TargetOf(got)
			if !ok || err != nil || target.Revision != "new" || target.Prepull == nil || !target.Prepull.Time.Equal(tt.want) {
				t.Errorf("got %+v, %t, %v; want since %v", target, ok, err, tt.want)
			}
			later := NewPrepullMarker(imagesOf("new"), upgrade.DefaultPolicy(), nil, free, podtest.Now.Add(time.Hour))
			if again := PatchMark(later.markFor(got), got, podtest.Now); again != nil {
				t.Errorf("got a second patch %s, want none", again)
			}
			checkRestUntouched(t, got)
		})
	}
	fine := patched(t, asking(podtest.PodAt("new"), "new", podtest.Before), PatchMark(m.markFor(podtest.PodAt("new")), asking(podtest.PodAt("new"), "new", podtest.Before), podtest.Now))
	if fine.Annotations[upgrade.TargetAnnotation] != "" {
		t.Error("a pod at the target tells its node to pull")
	}
	off := newTarget("new").markFor(podtest.PodAt("old"))
	if got := patched(t, asking(podtest.PodAt("old"), "new", podtest.Before), PatchMark(off, asking(podtest.PodAt("old"), "new", podtest.Before), podtest.Now)); MarkOf(got) != off {
		t.Errorf("without images first: got %+v, want %+v", MarkOf(got), off)
	}
}

func TestPatchIsWhatTheHubUnderstands(t *testing.T) {
	pod := podtest.PodAt("old")
	got := patched(t, pod, PatchMark(newTarget("new").markFor(pod), pod, podtest.Now))
	if r := upgrade.RevisionOf(upgrade.Condition(got, upgrade.NeedCondition)); r != "new" {
		t.Errorf("the condition names revision %q, want new", r)
	}
	target, ok, err := upgrade.TargetOf(got)
	if err != nil || !ok || target.Revision != "new" || target.Containers[0].Image != "app:new" {
		t.Errorf("got target %+v, %v, %v", target, ok, err)
	}
}

func TestPodsGetThePolicyWhereItIsNotTheDefault(t *testing.T) {
	policy := upgrade.Policy{MaxHold: time.Hour, Rollback: true}
	m := NewMarker(imagesOf("new"), policy, nil, free)
	for _, hash := range []string{"old", "new"} {
		pod := podtest.PodAt(hash)
		got := patched(t, pod, PatchMark(m.markFor(pod), pod, podtest.Now))
		if p, err := upgrade.PolicyOf(got); err != nil || p != policy {
			t.Errorf("the pod of the %s revision has policy %+v, %v", hash, p, err)
		}
		if again := PatchMark(m.markFor(got), got, podtest.Now); again != nil {
			t.Errorf("got a second patch %s, want none", again)
		}
		back := patched(t, got, PatchMark(newTarget("new").markFor(got), got, podtest.Now))
		if _, ok := back.Annotations[upgrade.PolicyAnnotation]; ok {
			t.Error("the policy is the default again, and the pod has another")
		}
		checkRestUntouched(t, back)
	}
}

func TestPatchNamesTheUID(t *testing.T) {
	pod := podtest.PodAt("old")
	var patch struct {
		Metadata struct{ UID string }
	}
	if err := json.Unmarshal(PatchMark(newTarget("new").markFor(pod), pod, podtest.Now), &patch); err != nil {
		t.Fatal(err)
	}
	if patch.Metadata.UID != "pod-uid" {
		t.Errorf("got UID %q as a precondition, want pod-uid", patch.Metadata.UID)
	}
}

func TestPlanMarksSkipsPodsWithTheRightMark(t *testing.T) {
	m := newTarget("new")
	pods := []*corev1.Pod{
		marked(podtest.PodAt("new"), m.markFor(podtest.PodAt("new"))),
		marked(podtest.PodAt("old"), m.markFor(podtest.PodAt("old"))),
		podtest.PodAt("old"),
	}
	p := PlanMarks(m, pods, podtest.Now)
	if p.Total != 3 || p.Need != 2 || len(p.Patches) != 1 || p.Patches[0].Pod != pods[2] {
		t.Errorf("got %d of %d pods and %d changes, want 2 of 3 and a change for the last", p.Need, p.Total, len(p.Patches))
	}
}

func TestAPodThatWouldNotComeBackSaysWhy(t *testing.T) {
	const why = "node n has the taint a=b:NoSchedule"
	m := NewMarker(imagesOf("new"), upgrade.DefaultPolicy(), nil, func(*corev1.Pod) string { return why })
	pods := []*corev1.Pod{podtest.PodAt("old"), podtest.PodAt("new")}
	p := PlanMarks(m, pods, podtest.Now)
	if p.Need != 1 || p.Blocked != 1 {
		t.Errorf("%d need an upgrade, %d are blocked; want 1 and 1", p.Need, p.Blocked)
	}
	got := patched(t, pods[0], p.Patches[0].Patch)
	c := upgrade.Condition(got, upgrade.NeedCondition)
	if target, ok, err := upgrade.TargetOf(got); !ok || err != nil || target.Blocked != why || c.Status != corev1.ConditionTrue ||
		c.Reason != ReasonUpgradeBlocked || c.Message != upgrade.Message("new") {
		t.Errorf("got %+v, %+v, %v", target, c, err)
	}
	free := newTarget("new").markFor(got)
	if now := patched(t, got, PatchMark(free, got, podtest.Now)); MarkOf(now) != free {
		t.Errorf("once the taint is gone: %+v, want %+v", MarkOf(now), free)
	}
}
