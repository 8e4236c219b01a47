package status

import (
	"bytes"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/api"
)

// Two times, an hour apart.
var (
	before = time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC)
	now    = before.Add(time.Hour)
)

// podAt returns a pod of the revision with this hash, with two conditions of others.
func podAt(hash string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID = "default", "web-1", "pod-uid"
	pod.Labels = map[string]string{appsv1.ControllerRevisionHashLabelKey: hash}
	pod.Annotations = map[string]string{"keep": "me"}
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionTrue},
		{Type: api.ImageCondition, Status: corev1.ConditionFalse, Message: api.Message("new")},
	}
	return pod
}

// marked is pod with m on it since the time before.
func marked(pod *corev1.Pod, m Mark) *corev1.Pod {
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: api.NeedCondition, Status: m.status, Reason: m.reason, Message: m.message, LastTransitionTime: metav1.NewTime(before),
	})
	if m.Target != "" {
		pod.Annotations[api.TargetAnnotation] = m.Target
	}
	if m.Policy != "" {
		pod.Annotations[api.PolicyAnnotation] = m.Policy
	}
	return pod
}

func newTarget(hash string) Marker {
	return NewMarker(imagesOf(hash), api.DefaultPolicy(), nil, free)
}

// free says that every node takes the next pod.
func free(*corev1.Pod) string { return "" }

func imagesOf(hash string) api.Target {
	return api.Target{Revision: hash, Number: 7, Containers: []api.TargetImage{{Name: "app", Image: "app:" + hash}}}
}

func TestPatchLeadsToTheWantedMark(t *testing.T) {
	toNew, toNewer := newTarget("new"), newTarget("newer")
	needs, fine := toNew.markFor(podAt("old")), toNew.markFor(podAt("new"))
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
			patch := PatchMark(tt.want, tt.pod, now)
			if patch == nil {
				t.Fatal("got no patch, want one")
			}
			got := patched(t, tt.pod, patch)
			if m := MarkOf(got); m != tt.want {
				t.Errorf("patch %s\ngot  %+v\nwant %+v", patch, m, tt.want)
			}
			if again := PatchMark(tt.want, got, now); again != nil {
				t.Errorf("got a second patch %s, want none", again)
			}
			since := before
			if tt.flips {
				since = now
			}
			if c := api.Condition(got, api.NeedCondition); !c.LastTransitionTime.Time.Equal(since) {
				t.Errorf("got lastTransitionTime %v, want %v", c.LastTransitionTime, since)
			}
			checkRestUntouched(t, got)
		})
	}
}

func TestTheZeroMarkRemovesEverything(t *testing.T) {
	m := NewMarker(imagesOf("new"), api.Policy{}, nil, free)
	for name, pod := range map[string]*corev1.Pod{
		"needs an upgrade": marked(podAt("old"), m.markFor(podAt("old"))),
		"up to date":       marked(podAt("new"), m.markFor(podAt("new"))),
	} {
		got := patched(t, pod, PatchMark(Mark{}, pod, now))
		if MarkOf(got) != (Mark{}) {
			t.Errorf("%s: got %+v, want no mark", name, MarkOf(got))
		}
		checkRestUntouched(t, got)
	}
	if patch := PatchMark(Mark{}, podAt("old"), now); patch != nil {
		t.Errorf("got patch %s for a pod without a mark, want none", patch)
	}
}

// checkRestUntouched looks at what belongs to others.
func checkRestUntouched(t *testing.T, got *corev1.Pod) {
	t.Helper()
	ready, image := api.Condition(got, corev1.PodReady), api.Condition(got, api.ImageCondition)
	if ready == nil || ready.Status != corev1.ConditionTrue || image == nil || image.Message != api.Message("new") {
		t.Errorf("conditions of others changed: %+v", got.Status.Conditions)
	}
	if got.Annotations["keep"] != "me" || got.UID != "pod-uid" {
		t.Errorf("metadata of others changed: %+v", got.ObjectMeta)
	}
}

// asking is pod with a target that asks its node to pull the images of the revision with
// this hash.
func asking(pod *corev1.Pod, hash string, since time.Time) *corev1.Pod {
	pod.Annotations[api.TargetAnnotation] = targetEncoder(imagesOf(hash))(variant{since: since.Unix()})
	return pod
}

func TestPrepullTargetsKeepTheirTime(t *testing.T) {
	m := NewPrepullMarker(imagesOf("new"), api.DefaultPolicy(), nil, free, now)
	tests := map[string]struct {
		pod  *corev1.Pod
		want time.Time
	}{
		"a pod without a mark":                      {podAt("old"), now},
		"a pod whose target has no time":            {marked(podAt("old"), newTarget("new").markFor(podAt("old"))), now},
		"a pod that asks":                           {asking(podAt("old"), "new", before), before},
		"a pod that asks for another revision":      {asking(podAt("old"), "between", before), now},
		"a pod that asks with a time in the future": {asking(podAt("old"), "new", now.Add(time.Hour)), now},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := tt.pod
			if patch := PatchMark(m.markFor(got), got, now); patch != nil {
				got = patched(t, got, patch)
			}
			target, ok, err := api.TargetOf(got)
			if !ok || err != nil || target.Revision != "new" || target.Number != 7 || target.Prepull == nil || !target.Prepull.Time.Equal(tt.want) {
				t.Errorf("got %+v, %t, %v; want since %v", target, ok, err, tt.want)
			}
			later := NewPrepullMarker(imagesOf("new"), api.DefaultPolicy(), nil, free, now.Add(time.Hour))
			if again := PatchMark(later.markFor(got), got, now); again != nil {
				t.Errorf("got a second patch %s, want none", again)
			}
			checkRestUntouched(t, got)
		})
	}
	fine := patched(t, asking(podAt("new"), "new", before), PatchMark(m.markFor(podAt("new")), asking(podAt("new"), "new", before), now))
	if fine.Annotations[api.TargetAnnotation] != "" {
		t.Error("a pod at the target tells its node to pull")
	}
	off := newTarget("new").markFor(podAt("old"))
	if got := patched(t, asking(podAt("old"), "new", before), PatchMark(off, asking(podAt("old"), "new", before), now)); MarkOf(got) != off {
		t.Errorf("without images first: got %+v, want %+v", MarkOf(got), off)
	}
}

func TestPatchIsWhatTheHubUnderstands(t *testing.T) {
	pod := podAt("old")
	patch := PatchMark(newTarget("new").markFor(pod), pod, now)
	if !bytes.Contains(patch, []byte(`"uid":"pod-uid"`)) {
		t.Errorf("the patch is for any pod of that name: %s", patch)
	}
	got := patched(t, pod, patch)
	if r := api.RevisionOf(api.Condition(got, api.NeedCondition)); r != "new" {
		t.Errorf("the condition names revision %q, want new", r)
	}
	target, ok, err := api.TargetOf(got)
	if err != nil || !ok || target.Revision != "new" || target.Number != 7 || target.Containers[0].Image != "app:new" {
		t.Errorf("got target %+v, %v, %v", target, ok, err)
	}
}

func TestPodsGetThePolicyWhereItIsNotTheDefault(t *testing.T) {
	policy := api.Policy{MaxHold: time.Hour, Rollback: true, InPlace: true}
	m := NewMarker(imagesOf("new"), policy, nil, free)
	for _, hash := range []string{"old", "new"} {
		pod := podAt(hash)
		got := patched(t, pod, PatchMark(m.markFor(pod), pod, now))
		want := policy
		want.Newest = 7 // that of the target, whatever revision the pod is of
		if p, err := api.PolicyOf(got); err != nil || p != want {
			t.Errorf("the pod of the %s revision has policy %+v, %v", hash, p, err)
		}
		if again := PatchMark(m.markFor(got), got, now); again != nil {
			t.Errorf("got a second patch %s, want none", again)
		}
		back := patched(t, got, PatchMark(newTarget("new").markFor(got), got, now))
		if _, ok := back.Annotations[api.PolicyAnnotation]; ok {
			t.Error("the policy is the default again, and the pod has another")
		}
		checkRestUntouched(t, back)
	}
}

func TestPlanMarksSkipsPodsWithTheRightMark(t *testing.T) {
	m := newTarget("new")
	pods := []*corev1.Pod{
		marked(podAt("new"), m.markFor(podAt("new"))),
		marked(podAt("old"), m.markFor(podAt("old"))),
		podAt("old"),
	}
	p := PlanMarks(m, pods, now)
	if p.Total != 3 || p.Need != 2 || len(p.Patches) != 1 || p.Patches[0].Pod != pods[2] {
		t.Errorf("got %d of %d pods and %d changes, want 2 of 3 and a change for the last", p.Need, p.Total, len(p.Patches))
	}
}

func TestAPodThatWouldNotComeBackSaysWhy(t *testing.T) {
	const why = "node n has the taint a=b:NoSchedule"
	m := NewMarker(imagesOf("new"), api.DefaultPolicy(), nil, func(*corev1.Pod) string { return why })
	pods := []*corev1.Pod{podAt("old"), podAt("new")}
	p := PlanMarks(m, pods, now)
	if p.Need != 1 || p.Blocked != 1 {
		t.Errorf("%d need an upgrade, %d are blocked; want 1 and 1", p.Need, p.Blocked)
	}
	got := patched(t, pods[0], p.Patches[0].Patch)
	c := api.Condition(got, api.NeedCondition)
	if target, ok, err := api.TargetOf(got); !ok || err != nil || target.Blocked != why || c.Status != corev1.ConditionTrue ||
		c.Reason != ReasonUpgradeBlocked || c.Message != api.Message("new") {
		t.Errorf("got %+v, %+v, %v", target, c, err)
	}
	free := newTarget("new").markFor(got)
	if now := patched(t, got, PatchMark(free, got, now)); MarkOf(now) != free {
		t.Errorf("once the taint is gone: %+v, want %+v", MarkOf(now), free)
	}
}
