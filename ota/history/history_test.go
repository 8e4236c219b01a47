package history

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

// podOf returns a Ready pod of DaemonSet web that runs app:REVISION, and allows two rollbacks.
func podOf(name, revision string, change ...func(*corev1.Pod)) *corev1.Pod {
	controller := true
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID("uid-" + name),
		Labels:      map[string]string{appsv1.ControllerRevisionHashLabelKey: revision},
		Annotations: map[string]string{api.PolicyAnnotation: api.Policy{Rollback: true, History: 2}.Encode()},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "DaemonSet", Name: "web", UID: "uid-web", Controller: &controller,
		}},
	}}
	p.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:" + revision}, {Name: "side", Image: "side:1"}}
	p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "side:1"}}
	p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	for _, f := range change {
		f(p)
	}
	return p
}

func notReady(p *corev1.Pod)  { p.Status.Conditions = nil }
func unmarked(p *corev1.Pod)  { p.Annotations = nil }
func deleting(p *corev1.Pod)  { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }
func ownerless(p *corev1.Pod) { p.OwnerReferences = nil }

func ownedBy(uid types.UID) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.OwnerReferences[0].UID = uid }
}

func recreated(p *corev1.Pod) { p.OwnerReferences[0].UID = "uid-web-2" }

func policy(want api.Policy) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[api.PolicyAnnotation] = want.Encode() }
}

func created(seconds int) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.CreationTimestamp = metav1.Unix(int64(seconds), 0) }
}

func open(t *testing.T, dir string) *History {
	t.Helper()
	h, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func nothing(string) bool { return false }

// shows returns the revisions of a pod's app, with * for the current.
func shows(h *History, pod *corev1.Pod) string {
	var out []string
	for _, r := range h.Of(pod, nothing).Items {
		if r.Current {
			r.Revision += "*"
		}
		out = append(out, r.Revision)
	}
	return strings.Join(out, " ")
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %s; want %s", what, got, want)
	}
}

// Each line is what the node runs, one after another, and the history of the last pod then.
func TestWhatANodeHasRun(t *testing.T) {
	type pods = []*corev1.Pod
	tests := map[string]struct {
		seen []pods
		want string
	}{
		"the revisions of pods that were ready": {[]pods{{podOf("a", "v1")}, {podOf("b", "v2")}, {podOf("c", "v3")}}, "v3* v2 v1"},
		"as many as the policy asks for":        {[]pods{{podOf("a", "v1")}, {podOf("b", "v2")}, {podOf("c", "v3")}, {podOf("d", "v4")}}, "v4* v3 v2"},
		"a pod that was never ready is shown but not recorded": {
			[]pods{{podOf("a", "v1")}, {podOf("b", "v2", notReady)}, {podOf("c", "v3")}}, "v3* v1",
		},
		"nothing is dropped until the pod of the new revision is ready": {
			[]pods{{podOf("a", "v1")}, {podOf("b", "v2")}, {podOf("c", "v3")}, {podOf("d", "v4", notReady)}}, "v4* v3 v2 v1",
		},
		"the previous revision again":              {[]pods{{podOf("a", "v1")}, {podOf("b", "v2")}, {podOf("c", "v1")}}, "v1* v2"},
		"the controller has rolled the pod back":   {[]pods{{podOf("a", "v1")}, {podOf("b", "v2")}, {podOf("b", "v1")}}, "v1* v2"},
		"a pod that is being deleted says nothing": {[]pods{{podOf("a", "v1")}, {podOf("b", "v2", deleting), podOf("c", "v3")}}, "v3* v1"},
		"another workload of the same name":        {[]pods{{podOf("a", "v1")}, {podOf("b", "v2", recreated)}}, "v2*"},
		"both, while the former's pod goes":        {[]pods{{podOf("a", "v1")}, {podOf("a", "v1", created(1)), podOf("b", "v2", recreated, created(2))}, {podOf("b", "v3", recreated)}}, "v3* v2"},
		"pods without an owner have none":          {[]pods{{podOf("a", "v1", ownerless)}, {podOf("a", "v2", ownerless)}}, "v2*"},
		"two pods of two revisions, of which both stay": {
			[]pods{
				{podOf("a", "v1", created(1), policy(api.Policy{History: 0}))},
				{podOf("a", "v1", created(1), policy(api.Policy{History: 0})), podOf("b", "v2", created(2), policy(api.Policy{History: 0}))},
			}, "v2* v1",
		},
		"no history is wanted": {[]pods{{podOf("a", "v1")}, {podOf("b", "v2", policy(api.Policy{History: 0}))}}, "v2*"},
		"a new pod has no policy yet": {
			[]pods{{podOf("a", "v1")}, {podOf("b", "v2")}, {podOf("c", "v3", unmarked)}}, "v3* v2 v1",
		},
		"a pod whose policy was removed has the default policy": {
			[]pods{{podOf("a", "v1")}, {podOf("b", "v2")}, {podOf("c", "v3")}, {podOf("c", "v3", unmarked)}}, "v3* v2",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			h := open(t, dir)
			var last *corev1.Pod
			for _, pods := range tt.seen {
				h.Update(pods)
				last = pods[len(pods)-1]
			}
			want(t, "history", shows(h, last), tt.want)
			want(t, "after a crash", shows(open(t, dir), last), tt.want)
			h.Update(tt.seen[len(tt.seen)-1])
			want(t, "after nothing has changed", shows(h, last), tt.want)
		})
	}
}

func TestWhatThereIsToGoBackTo(t *testing.T) {
	h := open(t, t.TempDir())
	if _, ok := h.Previous(podOf("a", "v1"), ""); ok {
		t.Error("a node that has run nothing has something to go back to")
	}
	h.Update([]*corev1.Pod{podOf("a", "v1")})
	h.Update([]*corev1.Pod{podOf("b", "v2")})
	pod := podOf("c", "v3")
	h.Update([]*corev1.Pod{pod})
	for hash, want := range map[string]string{
		"":   "{v2 [{app app:v2} {side side:1}] [{init side:1}] [registry]} true",
		"v1": "{v1 [{app app:v1} {side side:1}] [{init side:1}] [registry]} true",
		"v3": "{ [] [] []} false",
		"v0": "{ [] [] []} false",
	} {
		got, ok := h.Previous(pod, hash)
		if got := fmt.Sprintf("{%s %v %v %v} %v", got.Revision, got.Containers, got.InitContainers, got.ImagePullSecrets, ok); got != want {
			t.Errorf("%q: got %s, want %s", hash, got, want)
		}
	}
	if got, ok := h.Previous(podOf("d", "v4", notReady), ""); !ok || got.Revision != "v3" {
		t.Errorf("from a revision that was never ready: got %v %v, want v3", got.Revision, ok)
	}
}

func TestWhichImagesStay(t *testing.T) {
	retained := func(image string) bool { return image == "app:v2" || image == "side:1" }
	h := open(t, t.TempDir())
	h.Update([]*corev1.Pod{podOf("a", "v1")})
	pod := podOf("b", "v2")
	h.Update([]*corev1.Pod{pod})
	if got := h.Images(); !slices.Equal(got, []string{"app:v1", "app:v2", "side:1"}) {
		t.Errorf("got %q", got)
	}
	items := h.Of(pod, retained).Items
	if len(items) != 2 || !items[0].Retained || items[1].Retained || !slices.Equal(items[1].Images, []string{"side:1", "app:v1"}) {
		t.Errorf("got %+v, want v2 retained and v1 not", items)
	}
	if items[1].Blocked != "" {
		t.Errorf("an older controller says nothing, and the history: %+v", items)
	}
	pod.Annotations[api.PolicyAnnotation] = api.Policy{Rollback: true, History: 2}.EncodeWith(map[string]string{"v1": "spec.volumes differs"})
	if items := h.Of(pod, retained).Items; items[0].Blocked != "" || items[1].Blocked != "spec.volumes differs" {
		t.Errorf("got %+v, want why v1 is no way back", items)
	}
	h.Update([]*corev1.Pod{podOf("b", "v2", policy(api.Policy{MaxHold: 1, History: 2}))})
	if got := h.Images(); got != nil {
		t.Errorf("without rollback: got %q", got)
	}
	h.Update([]*corev1.Pod{pod})
	h.Update([]*corev1.Pod{podOf("b", "v2", func(p *corev1.Pod) { p.Annotations[api.PolicyAnnotation] = "forged" })})
	if got := h.Images(); len(got) != 3 {
		t.Errorf("a policy that cannot be read removes images: got %q", got)
	}
}

func TestAChangeOfTheImagesIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, changes := open(t, t.TempDir()), 0
		go h.Run(t.Context(), func() { changes++ })
		pod := podOf("b", "v2")
		for i, pods := range [][]*corev1.Pod{{podOf("a", "v1")}, {pod}, {pod}} {
			h.Update(pods)
			synctest.Wait()
			if want := min(i+1, 2); changes != want {
				t.Errorf("after update %d there were %d changes, want %d", i, changes, want)
			}
		}
	})
}

func TestAnAppThatHasLeftIsForgottenAfterAWeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h := open(t, dir)
		go h.Run(t.Context(), func() {})
		pod := podOf("a", "v1")
		h.Update([]*corev1.Pod{pod})
		time.Sleep(2 * forgetAfter)
		synctest.Wait()
		want(t, "while it has a pod", shows(h, pod), "v1*")
		h.Update([]*corev1.Pod{podOf("b", "v2", notReady)})
		time.Sleep(2 * forgetAfter)
		synctest.Wait()
		want(t, "while its pod is not ready", shows(h, podOf("b", "v2")), "v2* v1")

		h.Update(nil)
		time.Sleep(forgetAfter - time.Minute)
		synctest.Wait()
		if got := h.Images(); got == nil {
			t.Error("it was forgotten within a week")
		}
		again := open(t, dir) // a hub that has just started knows no pods, whatever the clock shows
		again.passAbsence()
		if got := again.Images(); got == nil {
			t.Error("it was forgotten before the pods were known")
		}
		time.Sleep(2 * absenceStep)
		synctest.Wait()
		if got, files := h.Images(), filesIn(t, dir); got != nil || len(files) > 0 {
			t.Errorf("it was not forgotten: %q %q", got, files)
		}
	})
}

func filesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Somebody who may create pods gives each of them another owner.
func TestTheNumberOfAppsIsBounded(t *testing.T) {
	h := open(t, t.TempDir())
	named := func(i int) *corev1.Pod {
		return podOf(fmt.Sprintf("pod-%d", i), "v1", func(p *corev1.Pod) { p.OwnerReferences[0].UID = types.UID(fmt.Sprintf("web-%d", i)) })
	}
	h.Update([]*corev1.Pod{named(0)})
	left := func(i int) types.NamespacedName {
		return types.NamespacedName{Namespace: "ns", Name: fmt.Sprintf("left-%d", i)}
	}
	for i := range maxApps - 1 {
		h.apps[left(i)] = app{Absent: time.Duration(i)}
	}
	h.Update([]*corev1.Pod{named(0), named(1)})
	all := h.all()
	if _, kept := all[left(maxApps-2)]; kept || len(all) != maxApps {
		t.Errorf("got %d apps, want %d; the one that has been away the longest is kept: %v", len(all), maxApps, kept)
	}
	for i := range 2 {
		want(t, "an app that has a pod", fmt.Sprint(len(h.revisions(named(i)))), "1")
	}
}

func TestAFullDiskDelaysOnlyTheFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "history")
	h := open(t, dir)
	// A folder in the file's place: it cannot be replaced.
	file := filepath.Join(dir, "ns_uid-web.json")
	if err := os.MkdirAll(filepath.Join(file, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	pod := podOf("a", "v1")
	h.Update([]*corev1.Pod{pod})
	want(t, "in memory", shows(h, pod), "v1*")
	if err := os.RemoveAll(file); err != nil {
		t.Fatal(err)
	}
	h.Update([]*corev1.Pod{pod})
	if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
		t.Error("the file was not written when it could be")
	}
}

// An apiserver accepts any owner reference that is not empty, from whoever may create pods.
func TestForgedOwners(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "upgrades", "history")
	h := open(t, dir)
	h.Update([]*corev1.Pod{
		podOf("a", "v1", ownedBy("../../../escaped")), podOf("b", "v1", ownedBy("x/../../../escaped")), podOf("c", "v1", ownedBy("..")),
		podOf("d", "v1", ownedBy(types.UID(strings.Repeat("x", 300)))),
		podOf("e", "v1", func(p *corev1.Pod) { p.OwnerReferences[0].Name = "x/../../../escaped" }),
	})
	if got := filesIn(t, dir); !slices.Equal(got, []string{"ns_uid-web.json"}) || len(filesIn(t, top)) != 1 {
		t.Errorf("files: %q, and above: %q", got, filesIn(t, top))
	}
	web := podOf("a", "v2")
	h.Update([]*corev1.Pod{web, podOf("b", "v1", recreated)})
	want(t, "a pod that passes for one of the same workload", shows(h, web), "v2* v1")

	h.Update([]*corev1.Pod{podOf("a", "v3", func(p *corev1.Pod) { p.Spec.Containers[0].Image = strings.Repeat("x", 1<<20) })})
	want(t, "a revision of a megabyte", shows(h, web), "v2* v1")
}

func TestHowLongAnAppTakesToStart(t *testing.T) {
	began := time.Unix(1000, 0)
	running := func(restarts int32, ready time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{
				{Name: "side", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(began.Add(time.Second))}}},
				{Name: "app", RestartCount: restarts, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(began)}}},
			}
			p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(began.Add(ready))
		}
	}
	for name, test := range map[string]struct {
		pods []*corev1.Pod
		want int
	}{
		"some seconds":            {[]*corev1.Pod{podOf("a", "v1", running(0, 3*time.Second))}, 3},
		"at once":                 {[]*corev1.Pod{podOf("a", "v1", running(0, 0))}, 1},
		"nothing is known":        {[]*corev1.Pod{podOf("a", "v1")}, 0},
		"it was restarted":        {[]*corev1.Pod{podOf("a", "v1", running(1, 3*time.Second))}, 0},
		"it was Ready before":     {[]*corev1.Pod{podOf("a", "v1", running(0, time.Hour))}, 0},
		"a later transition":      {[]*corev1.Pod{podOf("a", "v1", running(0, 3*time.Second)), podOf("a", "v1", running(0, time.Minute))}, 3},
		"another pod, of another": {[]*corev1.Pod{podOf("a", "v1", running(0, 3*time.Second)), podOf("b", "v2", running(0, 9*time.Second))}, 9},
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t, t.TempDir())
			for _, pod := range test.pods {
				h.Update([]*corev1.Pod{pod})
			}
			if got := h.StartSeconds(test.pods[len(test.pods)-1]); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}
