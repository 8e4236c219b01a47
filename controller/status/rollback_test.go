package status

import (
	"bytes"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/rollback"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/api"
)

// twoRevisions are old and new, which differ by an image.
func twoRevisions() *rollback.Revisions {
	var all []*appsv1.ControllerRevision
	for i, hash := range []string{"old", "new"} {
		r := &appsv1.ControllerRevision{Revision: int64(i)}
		r.Labels = map[string]string{appsv1.ControllerRevisionHashLabelKey: hash}
		r.Data.Raw = fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"app:%s"}]}}}}`, hash)
		all = append(all, r)
	}
	return rollback.NewRevisions("new", all, func(*corev1.Pod) bool { return false })
}

func withImage(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:" + pod.Labels[appsv1.ControllerRevisionHashLabelKey]}}
	return pod
}

func TestTheMarkOfARollback(t *testing.T) {
	wish := func(pod *corev1.Pod) *corev1.Pod {
		pod.Annotations[api.RollbackAnnotation] = api.Rollback{Revision: "old", From: "new"}.Encode()
		return withImage(pod)
	}
	ended := withImage(podAt("old"))
	ended.Annotations[api.RollbackAnnotation] = api.Rollback{Revision: "old", From: "between"}.Encode()
	allowed := api.Policy{Rollback: true}
	tests := map[string]struct {
		pod           *corev1.Pod
		policy        api.Policy
		need          string // status and reason
		rolledBack    string // status and reason
		needs, beside int    // of the plan
	}{
		"done":        {wish(podAt("old")), allowed, "True RolledBackByOwner", "True RolledBackByOwner", 0, 1},
		"not yet":     {wish(podAt("new")), allowed, "False UpToDate", " ", 0, 0},
		"refused":     {wish(podAt("new")), api.Policy{}, "False UpToDate", "False NotPermitted", 0, 0},
		"ended":       {ended, allowed, "True UpgradeAvailable", "False NewerRevision", 1, 0},
		"it is over":  {withImage(podAt("old")), allowed, "True UpgradeAvailable", " ", 1, 0},
		"never asked": {withImage(podAt("new")), allowed, "False UpToDate", " ", 0, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := NewMarker(imagesOf("new"), tt.policy, twoRevisions(), free)
			tt.pod.ResourceVersion = "7"
			p := PlanMarks(m, []*corev1.Pod{tt.pod}, now)
			if p.Need != tt.needs || p.RolledBack != tt.beside || p.UpToDate() != 1-tt.needs-tt.beside {
				t.Errorf("got %+v", p)
			}
			if versioned := bytes.Contains(p.Patches[0].Patch, []byte(`"resourceVersion":"7"`)); versioned != (tt.rolledBack != " ") {
				t.Errorf("an answer is to one wish, and nothing else depends on the version: %s", p.Patches[0].Patch)
			}
			got := MarkOf(patched(t, tt.pod, p.Patches[0].Patch))
			if s := string(got.status) + " " + got.reason; s != tt.need || got.message != api.Message("new") {
				t.Errorf("PodNeedUpgrade is %q, %q, want %q", s, got.message, tt.need)
			}
			if s := string(got.rolledBack.status) + " " + got.rolledBack.reason; s != tt.rolledBack {
				t.Errorf("PodRolledBack is %q, want %q", s, tt.rolledBack)
			}
			if (got.Target != "") != (got.status == corev1.ConditionTrue) {
				t.Errorf("target %q", got.Target)
			}
			// In a rollout, only those who went back can upgrade.
			rolled := RolloutPatches(m, &rollout.Plan{Revision: "new"}, []*corev1.Pod{tt.pod}, func(types.UID) bool { return false }, now)
			if tt.beside == 0 {
				return
			}
			if inRollout := MarkOf(patched(t, tt.pod, rolled[0].Patch)); inRollout != got {
				t.Errorf("in a rollout %+v, with OTA %+v", inRollout, got)
			}
		})
	}
}
