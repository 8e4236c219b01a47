package page_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/page"
)

// sources are what a List reads of one pod.
type sources struct {
	pull     *api.ImagePull
	last     *api.Upgrade
	hold     *api.Hold
	refused  error
	previous *api.Target
	inPlace  bool
}

func (s *sources) list(pods ...*corev1.Pod) api.AppList {
	return (&page.AppSources{
		Pods:     func() []*corev1.Pod { return pods },
		Pull:     func(types.NamespacedName) (api.ImagePull, bool) { return deref(s.pull) },
		Upgrade:  func(types.NamespacedName) (api.Upgrade, bool) { return deref(s.last) },
		Hold:     func(*corev1.Pod) (api.Hold, bool) { return deref(s.hold) },
		Seconds:  func(*corev1.Pod) int { return 4 },
		Refused:  func(*corev1.Pod) error { return s.refused },
		InPlace:  func(*corev1.Pod) bool { return s.inPlace },
		Previous: func(*corev1.Pod) (api.Target, bool) { return deref(s.previous) },
	}).List()
}

func deref[T any](p *T) (value T, ok bool) {
	if p == nil {
		return value, false
	}
	return *p, true
}

// pod returns a Ready pod of DaemonSet camera that runs camera:v1.
func pod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "site", Name: "camera-x", UID: "uid-x", Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: "r1"}, Annotations: map[string]string{},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "camera", Controller: new(true)}},
	}}
	p.Spec.Containers = []corev1.Container{{Name: "camera", Image: "camera:v1"}, {Name: "side", Image: "side:1"}, {Name: "side-2", Image: "side:1"}}
	p.Status.Phase = corev1.PodRunning
	p.Status.StartTime = &metav1.Time{Time: time.Unix(100, 0)}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	for _, f := range change {
		f(p)
	}
	return p
}

// marked has the controller offer revision r2, with camera:v2.
func marked(p *corev1.Pod) {
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: api.NeedCondition, Status: corev1.ConditionTrue, Message: api.Message("r2")})
	target := api.Target{Revision: "r2", Containers: []api.TargetImage{{Name: "camera", Image: "camera:v2"}, {Name: "side", Image: "side:1"}}}
	p.Annotations[api.TargetAnnotation] = target.Encode()
}

func newest(p *corev1.Pod) {
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: api.NeedCondition, Status: corev1.ConditionFalse, Message: api.Message("r1")})
}

func policy(want api.Policy) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[api.PolicyAnnotation] = want.Encode() }
}

func crashed(p *corev1.Pod) {
	p.Status.Conditions[0].Status = corev1.ConditionFalse
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "camera", RestartCount: 7, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}},
	}}
}

func pull(state api.PullState, done, total int64) *api.ImagePull {
	return &api.ImagePull{UID: "uid-x", Revision: "r2", State: state, Images: []api.Image{{Image: "camera:v2", State: state, BytesDone: done, BytesTotal: total}}}
}

func TestList(t *testing.T) {
	hold := &api.Hold{Reason: "unloading"}
	back := &api.Target{Revision: "r0", Containers: []api.TargetImage{{Name: "camera", Image: "camera:v0"}}}
	probation := &api.Upgrade{UID: "uid-x", State: api.InProgress, InPlace: &api.InPlace{State: api.InProbation}}
	queued := &api.Upgrade{UID: "uid-x", State: api.WaitingForCloud}
	plain := api.App{
		Namespace: "site", Pod: "camera-x", UID: "uid-x", Kind: "DaemonSet", Workload: "camera", Images: []string{"camera:v1", "side:1"},
		Ready: true, Started: new(time.Unix(100, 0)),
	}
	managed := func(change func(*api.App)) api.App {
		a := plain
		a.MayHold = true
		if change != nil {
			change(&a)
		}
		return a
	}
	update := func(change func(*api.AppUpdate)) func(*api.App) {
		return func(a *api.App) {
			a.Update = &api.AppUpdate{Revision: "r2", Images: []string{"camera:v2"}, Seconds: 4}
			if change != nil {
				change(a.Update)
			}
		}
	}
	tests := map[string]struct {
		pod  *corev1.Pod
		of   sources
		want api.App
	}{
		"a pod that its owner has no say in": {pod(), sources{previous: back}, plain},
		"the newest version":                 {pod(newest), sources{}, managed(nil)},
		"an update":                          {pod(marked), sources{}, managed(update(nil))},
		"an update that is refused": {pod(marked), sources{refused: errors.New("not now")}, managed(update(func(u *api.AppUpdate) {
			u.Blocked = "not now"
		}))},
		"an update that takes effect at once without the cloud": {pod(marked), sources{inPlace: true}, managed(update(func(u *api.AppUpdate) { u.InPlace = true }))},
		"an update that runs, and the cloud does not know yet":  {pod(marked, func(p *corev1.Pod) { p.Labels[appsv1.ControllerRevisionHashLabelKey] = "r2" }), sources{}, managed(nil)},
		"its images come": {pod(marked), sources{pull: pull(api.Pulling, 5, 40)}, managed(update(func(u *api.AppUpdate) {
			u.Pull, u.Bytes = pull(api.Pulling, 5, 40), 35
		}))},
		"they come, and nobody knows how much": {pod(marked), sources{pull: pull(api.Pulling, 5, 0)}, managed(update(func(u *api.AppUpdate) {
			u.Pull = pull(api.Pulling, 5, 0)
		}))},
		"they are here": {pod(marked), sources{pull: pull(api.Ready, 40, 40)}, managed(update(func(u *api.AppUpdate) {
			u.Pull, u.Here = pull(api.Ready, 40, 40), true
		}))},
		"a pull of an earlier revision": {pod(marked), sources{pull: &api.ImagePull{UID: "uid-x", Revision: "r1", State: api.Ready}}, managed(update(nil))},
		"the pod shows that they are here": {pod(marked, func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: api.ImageCondition, Status: corev1.ConditionTrue, Message: api.Message("r2")})
		}), sources{}, managed(update(func(u *api.AppUpdate) { u.Here = true }))},
		"on hold, queued, and with a way back": {pod(marked, policy(api.Policy{MaxHold: time.Hour, Rollback: true, History: 1})), sources{hold: hold, last: queued, previous: back},
			managed(func(a *api.App) {
				update(nil)(a)
				a.Hold, a.Upgrade, a.MayRollback, a.Previous = hold, queued, true, []string{"camera:v0"}
			})},
		"on probation, the way back is to what the cloud has": {pod(marked, policy(api.Policy{MaxHold: time.Hour, Rollback: true})), sources{last: probation}, managed(func(a *api.App) {
			update(nil)(a)
			a.Upgrade, a.MayRollback, a.Previous = probation, true, a.Images
		})},
		"on probation, without the admin's permission to go back": {pod(marked), sources{last: probation}, managed(func(a *api.App) {
			update(nil)(a)
			a.Upgrade = probation
		})},
		"the cluster has the version before no more": {pod(newest, func(p *corev1.Pod) {
			p.Annotations = map[string]string{api.PolicyAnnotation: api.Policy{MaxHold: time.Hour, Rollback: true}.EncodeWith(map[string]string{})}
		}), sources{previous: back}, managed(func(a *api.App) { a.MayRollback = true })},
		"neither holds nor rollbacks are permitted": {pod(newest, policy(api.Policy{})), sources{previous: back}, plain},
		"the upgrade of an earlier pod of the name": {pod(newest), sources{last: &api.Upgrade{UID: "other"}}, managed(nil)},
		"a container that crashes": {pod(crashed), sources{}, func() api.App {
			a := plain
			a.Ready, a.Restarts, a.Trouble = false, 7, "container camera: CrashLoopBackOff, restarts: 7, last exit code 1"
			return a
		}()},
		"a pod that ends": {pod(crashed, func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }), sources{}, func() api.App {
			a := plain
			a.Ready, a.Restarts, a.Deleting = false, 7, true
			return a
		}()},
		"a start in a year that JSON has not": {pod(func(p *corev1.Pod) { p.Status.StartTime = new(metav1.Unix(1<<40, 0)) }), sources{}, func() api.App {
			a := plain
			a.Started = nil
			return a
		}()},
		"a target that is none": {pod(marked, func(p *corev1.Pod) { p.Annotations[api.TargetAnnotation] = strings.Repeat("{", 200_000) }), sources{}, managed(update(func(u *api.AppUpdate) {
			u.Images = []string{}
		}))},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := test.of.list(test.pod).Items
			if len(got) != 1 || !reflect.DeepEqual(got[0], test.want) {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
				if len(got) == 1 && got[0].Update != nil {
					t.Errorf("update: got %+v", *got[0].Update)
				}
			}
		})
	}
}

func TestOrderAndPodsThatHaveEnded(t *testing.T) {
	named := func(name string, change ...func(*corev1.Pod)) *corev1.Pod {
		return pod(append(change, func(p *corev1.Pod) { p.Name = name })...)
	}
	ended := named("ended")
	ended.Status.Phase = corev1.PodFailed
	var got []string
	for _, a := range (&sources{}).list(named("b"), named("z", marked), ended, named("a")).Items {
		got = append(got, a.Pod)
	}
	if want := []string{"z", "a", "b"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if items := (&sources{}).list().Items; items == nil {
		t.Error("no pods are null in JSON, want []")
	}
}

// A full node is listed once a second while a page is open.
func BenchmarkList(b *testing.B) {
	var pods []*corev1.Pod
	for i := range 110 {
		pods = append(pods, pod(marked, func(p *corev1.Pod) { p.Name = fmt.Sprintf("camera-%d", i) }))
	}
	s := &sources{}
	for b.Loop() {
		s.list(pods...)
	}
}
