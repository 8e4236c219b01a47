package controller

import (
	"encoding/json"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/edgehub-io/edgehub/ota/upgrade"
)

var (
	before = time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC)
	now    = time.Date(2026, 1, 1, 11, 0, 0, 0, time.UTC)
)

// podAt is a pod of the revision with this hash, with two conditions of others.
func podAt(hash string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID = "default", "web-1", "pod-uid"
	pod.Labels = map[string]string{appsv1.ControllerRevisionHashLabelKey: hash}
	pod.Annotations = map[string]string{"keep": "me"}
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionTrue},
		{Type: upgrade.ImageCondition, Status: corev1.ConditionFalse, Message: upgrade.Message("new")},
	}
	return pod
}

// marked is pod with m on it since the time before.
func marked(pod *corev1.Pod, m mark) *corev1.Pod {
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: upgrade.NeedCondition, Status: m.status, Reason: m.reason, Message: m.message, LastTransitionTime: metav1.NewTime(before),
	})
	if m.target != "" {
		pod.Annotations[upgrade.TargetAnnotation] = m.target
	}
	return pod
}

func newTarget(hash string) marker {
	return newMarker(imagesOf(hash))
}

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
	needs, fine := toNew.markFor(podAt("old")), toNew.markFor(podAt("new"))
	otherReason := needs
	otherReason.reason = "Other"
	noTarget := needs
	noTarget.target = ""
	staleTarget := fine
	staleTarget.target = needs.target
	tests := map[string]struct {
		pod  *corev1.Pod
		want mark
		// flips: lastTransitionTime is now; else it stays.
		flips bool
	}{
		"a new pod at the target":                 {podAt("new"), fine, true},
		"a new pod at an old revision":            {podAt("old"), needs, true},
		"a pod without a hash counts as old":      {podAt(""), needs, true},
		"it needed none, and does now":            {marked(podAt("old"), fine), needs, true},
		"it needed one, and after an undo not":    {marked(podAt("new"), needs), fine, true},
		"it still needs one, to a newer revision": {marked(podAt("old"), needs), toNewer.markFor(podAt("old")), false},
		"somebody changed the reason":             {marked(podAt("old"), otherReason), needs, false},
		"somebody removed the annotation":         {marked(podAt("old"), noTarget), needs, false},
		"an annotation was left behind":           {marked(podAt("new"), staleTarget), fine, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			patch := markPatch(tt.want, tt.pod, now)
			if patch == nil {
				t.Fatal("got no patch, want one")
			}
			got := patched(t, tt.pod, patch)
			if m := markOf(got); m != tt.want {
				t.Errorf("patch %s\ngot  %+v\nwant %+v", patch, m, tt.want)
			}
			if again := markPatch(tt.want, got, now); again != nil {
				t.Errorf("got a second patch %s, want none", again)
			}
			since := before
			if tt.flips {
				since = now
			}
			if c := upgrade.Condition(got, upgrade.NeedCondition); !c.LastTransitionTime.Time.Equal(since) {
				t.Errorf("got lastTransitionTime %v, want %v", c.LastTransitionTime, since)
			}
			checkRestUntouched(t, got)
		})
	}
}

func TestTheZeroMarkRemovesEverything(t *testing.T) {
	m := newTarget("new")
	for name, pod := range map[string]*corev1.Pod{
		"needs an upgrade": marked(podAt("old"), m.markFor(podAt("old"))),
		"up to date":       marked(podAt("new"), m.markFor(podAt("new"))),
	} {
		got := patched(t, pod, markPatch(mark{}, pod, now))
		if upgrade.Condition(got, upgrade.NeedCondition) != nil || got.Annotations[upgrade.TargetAnnotation] != "" {
			t.Errorf("%s: got %+v, want no mark", name, markOf(got))
		}
		checkRestUntouched(t, got)
	}
	if patch := markPatch(mark{}, podAt("old"), now); patch != nil {
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

// told is pod with what tells its node to pull the images of the revision with this
// hash.
func told(pod *corev1.Pod, hash string, since time.Time) *corev1.Pod {
	pod.Annotations[upgrade.TargetAnnotation] = newPrepullTarget(imagesOf(hash)).encode(since)
	return pod
}

func TestWithImagesFirstATargetSaysSinceWhen(t *testing.T) {
	m := newPrepullMarker(imagesOf("new"), now)
	tests := map[string]struct {
		pod  *corev1.Pod
		want time.Time
	}{
		"a pod without a mark":                 {podAt("old"), now},
		"one that had none of this":            {marked(podAt("old"), newTarget("new").markFor(podAt("old"))), now},
		"one that has told already":            {told(podAt("old"), "new", before), before},
		"one that has told of another":         {told(podAt("old"), "between", before), now},
		"one that has told a time yet to come": {told(podAt("old"), "new", now.Add(time.Hour)), now},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := tt.pod
			if patch := markPatch(m.markFor(got), got, now); patch != nil {
				got = patched(t, got, patch)
			}
			target, ok, err := upgrade.TargetOf(got)
			if !ok || err != nil || target.Revision != "new" || target.Prepull == nil || !target.Prepull.Time.Equal(tt.want) {
				t.Errorf("got %+v, %t, %v; want since %v", target, ok, err, tt.want)
			}
			later := newPrepullMarker(imagesOf("new"), now.Add(time.Hour))
			if again := markPatch(later.markFor(got), got, now); again != nil {
				t.Errorf("got a second patch %s, want none", again)
			}
			checkRestUntouched(t, got)
		})
	}
	fine := patched(t, told(podAt("new"), "new", before), markPatch(m.markFor(podAt("new")), told(podAt("new"), "new", before), now))
	if fine.Annotations[upgrade.TargetAnnotation] != "" {
		t.Error("a pod at the target tells its node to pull")
	}
	off := newTarget("new").markFor(podAt("old"))
	if got := patched(t, told(podAt("old"), "new", before), markPatch(off, told(podAt("old"), "new", before), now)); markOf(got) != off {
		t.Errorf("without images first: got %+v, want %+v", markOf(got), off)
	}
}

func TestPatchIsWhatTheHubUnderstands(t *testing.T) {
	pod := podAt("old")
	got := patched(t, pod, markPatch(newTarget("new").markFor(pod), pod, now))
	if r := upgrade.RevisionOf(upgrade.Condition(got, upgrade.NeedCondition)); r != "new" {
		t.Errorf("the condition names revision %q, want new", r)
	}
	target, ok, err := upgrade.TargetOf(got)
	if err != nil || !ok || target.Revision != "new" || target.Containers[0].Image != "app:new" {
		t.Errorf("got target %+v, %v, %v", target, ok, err)
	}
}

func TestPatchNamesTheUID(t *testing.T) {
	pod := podAt("old")
	var patch struct {
		Metadata struct{ UID string }
	}
	if err := json.Unmarshal(markPatch(newTarget("new").markFor(pod), pod, now), &patch); err != nil {
		t.Fatal(err)
	}
	if patch.Metadata.UID != "pod-uid" {
		t.Errorf("got UID %q as a precondition, want pod-uid", patch.Metadata.UID)
	}
}

func TestPlanCountsAndLeavesAloneWhatIsRight(t *testing.T) {
	m := newTarget("new")
	pods := []*corev1.Pod{
		marked(podAt("new"), m.markFor(podAt("new"))),
		marked(podAt("old"), m.markFor(podAt("old"))),
		podAt("old"),
	}
	p := planMarks(m, pods, now)
	if p.total != 3 || p.need != 2 || len(p.changes) != 1 || p.changes[0].pod != pods[2] {
		t.Errorf("got %d of %d pods and %d changes, want 2 of 3 and a change for the last", p.need, p.total, len(p.changes))
	}
}
