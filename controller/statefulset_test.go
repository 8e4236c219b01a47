package controller_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/api"
)

const strategyKey = "apps.openyurt.io/update-strategy"

// database is a StatefulSet, the DaemonSet's namesake, whose pods have the same labels.
type database struct {
	*model
	node string // of its pods
}

// addStatefulSet makes it, with two pods of image app:1 on a node.
func (m *model) addStatefulSet(strategy, node string) database {
	db := database{m, node}
	sts := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: daemonSetName, UID: "sts", Generation: 1, Annotations: map[string]string{strategyKey: strategy},
	}}
	sts.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": daemonSetName}}
	sts.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
	sts.Spec.MinReadySeconds = 7
	replicas := int32(2)
	sts.Spec.Replicas, sts.Spec.PodManagementPolicy = &replicas, appsv1.OrderedReadyPodManagement
	m.api.with(func() { m.api.putLocked("statefulsets", sts) })
	db.observe("app:1")
	for i := range 2 {
		db.make(i, "app:1")
	}
	time.Sleep(time.Minute)
	return db
}

func (db database) change(f func(*appsv1.StatefulSet)) {
	db.api.with(func() {
		sts := db.api.objects["statefulsets"][namespace+"/"+daemonSetName].DeepCopyObject().(*appsv1.StatefulSet)
		f(sts)
		db.api.putLocked("statefulsets", sts)
	})
}

// revisionOf is the name of the ControllerRevision with an image, and its pods' label.
func revisionOf(image string) string { return daemonSetName + "-sts-" + hashOf(image) }

func (db database) ownedBy() []metav1.OwnerReference {
	sts := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: daemonSetName, UID: "sts"}}
	return []metav1.OwnerReference{*metav1.NewControllerRef(sts, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
}

// observe has the StatefulSet controller observe a template with this image: status first, and then
// the revision, as two watches may show them.
func (db database) observe(image string) {
	db.change(func(sts *appsv1.StatefulSet) {
		sts.Status.ObservedGeneration, sts.Status.UpdateRevision = sts.Generation, revisionOf(image)
	})
	time.Sleep(time.Second)
	requests := corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64")}}
	template := map[string]any{"spec": corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: image, Resources: requests}}}}
	db.api.with(func() {
		db.api.putLocked("controllerrevisions", &appsv1.ControllerRevision{
			Revision: int64(db.api.version), // greater than all before
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: revisionOf(image), UID: types.UID(revisionOf(image)), OwnerReferences: db.ownedBy(),
				Labels: map[string]string{"app": daemonSetName, "controller.kubernetes.io/hash": hashOf(image)},
			},
			Data: runtime.RawExtension{Raw: encode(map[string]any{"spec": map[string]any{"template": template}})},
		})
	})
}

func podOf(ordinal int) string { return fmt.Sprintf("%s-%d", daemonSetName, ordinal) }

// make makes a pod, or another in its place.
func (db database) make(ordinal int, image string) {
	db.last++
	name := podOf(ordinal)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(fmt.Sprintf("%s-%d", name, db.last)),
		Labels:            map[string]string{"app": daemonSetName, appsv1.ControllerRevisionHashLabelKey: revisionOf(image)},
		CreationTimestamp: metav1.Now(), OwnerReferences: db.ownedBy(),
	}, Spec: corev1.PodSpec{NodeName: db.node, Containers: []corev1.Container{{Name: "app", Image: image}}}}
	db.api.with(func() {
		if before, ok := db.api.objects["pods"][keyOf(pod)]; ok {
			db.api.removeLocked("pods", before)
		}
		db.api.putLocked("pods", pod)
	})
}

// changePod changes a pod, as its node may.
func (db database) changePod(ordinal int, f func(*corev1.Pod)) {
	db.api.with(func() {
		pod := db.api.objects["pods"][namespace+"/"+podOf(ordinal)].DeepCopyObject().(*corev1.Pod)
		f(pod)
		db.api.putLocked("pods", pod)
	})
}

// marks returns the condition, target image and revision of each pod of the StatefulSet. It has the
// policy if it is marked, and only then.
func (db database) marks() map[string]string {
	db.api.mu.Lock()
	defer db.api.mu.Unlock()
	out := map[string]string{}
	want := api.Policy{MaxHold: api.DefaultMaxHold, Rollback: true, History: 1}
	sts := db.api.objects["statefulsets"][namespace+"/"+daemonSetName].(*appsv1.StatefulSet)
	if _, want.InPlace = sts.Annotations[api.OfflineUpgradeAnnotation]; want.InPlace {
		want.Newest = db.api.objects["controllerrevisions"][namespace+"/"+sts.Status.UpdateRevision].(*appsv1.ControllerRevision).Revision
	}
	for _, o := range db.api.objects["pods"] {
		pod := o.(*corev1.Pod)
		if pod.OwnerReferences[0].Kind != "StatefulSet" {
			continue
		}
		out[pod.Name] = "unmarked"
		if c := api.Condition(pod, api.NeedCondition); c != nil {
			out[pod.Name] = fmt.Sprintf("%s %s", c.Status, api.RevisionOf(c))
		}
		policy, err := api.PolicyOf(pod)
		annotation, annotated := pod.Annotations[api.PolicyAnnotation]
		if marked := out[pod.Name] != "unmarked"; err != nil || marked != annotated || marked && policy != want {
			out[pod.Name] += ", policy " + annotation
		}
		if t, ok, err := api.TargetOf(pod); err != nil {
			db.t.Error(err)
		} else if ok {
			out[pod.Name] += fmt.Sprintf(" to %s, %d s", t.Containers[0].Image, t.MinReadySeconds)
			if r := db.api.objects["controllerrevisions"][namespace+"/"+t.Revision].(*appsv1.ControllerRevision); t.Number != r.Revision {
				out[pod.Name] += fmt.Sprintf(", number %d", t.Number)
			}
			if t.Blocked != "" || t.Requests != nil {
				out[pod.Name] += " if its node has room"
			}
		}
	}
	return out
}

func (db database) expect(when, first, second string) {
	db.t.Helper()
	time.Sleep(10 * time.Second)
	if got, want := db.marks(), map[string]string{podOf(0): first, podOf(1): second}; !maps.Equal(got, want) {
		db.t.Errorf("%s: got %v, want %v", when, got, want)
	}
}

// reports expects what the StatefulSet's report says, "" for none.
func (db database) reports(revision, message string) {
	db.t.Helper()
	time.Sleep(10 * time.Second) // until its pods are available, and then it may wait
	db.api.mu.Lock()
	defer db.api.mu.Unlock()
	switch r, current := rollout.ReportOn(db.api.objects["statefulsets"][namespace+"/"+daemonSetName].(*appsv1.StatefulSet)); {
	case r == nil && message == "":
	case r == nil || !current || r.Revision != revision || r.Message != message:
		db.t.Errorf("the report is %+v, current: %t", r, current)
	}
}

// events returns the messages of Events on StatefulSets with this reason.
func (db database) events(reason string) string {
	db.api.mu.Lock()
	defer db.api.mu.Unlock()
	var out []string
	for i := range db.api.events {
		if e := &db.api.events[i]; e.Reason == reason && e.InvolvedObject.Kind == "StatefulSet" && e.InvolvedObject.UID == "sts" {
			out = append(out, e.Message)
		}
	}
	return strings.Join(out, "\n")
}

func TestModelAStatefulSetIsMarked(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := newModel(t, 1, 1, "OTA")
		m.api.with(func() { // the next pods may run on another node
			node := m.api.objects["nodes"]["/n1"].DeepCopyObject().(*corev1.Node)
			node.Spec.Taints = []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}
			m.api.putLocked("nodes", node)
		})
		db := m.addStatefulSet("OTA", "n1")
		m.start()
		one, two := revisionOf("app:1"), revisionOf("app:2")
		db.expect("at the target", "False "+one, "False "+one)
		if got := db.events("PodsAreMadeInOrder"); !strings.Contains(got, "OrderedReady") || strings.Contains(got, "\n") {
			t.Errorf("Events: %q", got)
		}
		if got := db.events("UpToDate"); !strings.Contains(got, one) {
			t.Errorf("Events: %q", got)
		}

		db.change(func(sts *appsv1.StatefulSet) { sts.Generation++ })
		db.expect("before Kubernetes has observed the change", "False "+one, "False "+one)
		db.observe("app:2")
		need := "True " + two + " to app:2, 7 s"
		db.expect("observed", need, need)
		db.make(1, "app:2") // as POST upgrade and Kubernetes do: another pod of the same name
		db.expect("one upgraded", need, "False "+two)
		db.reports(two, "1 of 2 pods updated, 1 waiting for their owner")
		if got := db.events("UpgradeAvailable"); !strings.Contains(got, "2 of 2 pods") {
			t.Errorf("Events: %q", got)
		}
		if need, not := m.gauge("statefulset_pods", "needs_upgrade"), m.gauge("statefulset_pods", "up_to_date"); need != 1 || not != 1 {
			t.Errorf("the metric counts %v and %v pods, want 1 and 1", need, not)
		}
		m.setImage("app:3") // of the DaemonSet
		db.expect("the DaemonSet has another revision", need, "False "+two)

		// Back to the first revision, whose ControllerRevision is not the newest made.
		db.change(func(sts *appsv1.StatefulSet) { sts.Generation++ })
		db.observe("app:1")
		db.expect("undone", "False "+one, "True "+one+" to app:1, 7 s")

		db.change(func(sts *appsv1.StatefulSet) {
			sts.Annotations = map[string]string{api.ReportAnnotation: sts.Annotations[api.ReportAnnotation]}
		})
		db.expect("opted out", "unmarked", "unmarked")
		db.reports("", "")
		if got := db.events("UpgradeMarksRemoved"); !strings.Contains(got, "the StatefulSet no longer asks for OTA: 2 pods") {
			t.Errorf("Events: %q", got)
		}
		if n := m.gauge("statefulset_pods", "needs_upgrade"); n != -1 {
			t.Errorf("the metric still counts %v pods", n)
		}
		if n := m.api.count(time.Time{}, "DELETE", "pods"); n > 0 {
			t.Errorf("%d pods were deleted", n)
		}
	})
}

func TestModelAStatefulSetWithoutUseForOTA(t *testing.T) {
	tests := map[string]struct {
		change func(*appsv1.StatefulSet)
		event  string
	}{
		"a rollout is for DaemonSets": {func(sts *appsv1.StatefulSet) { sts.Annotations[strategyKey] = rolling }, "no update strategy for a StatefulSet: set it to OTA"},
		"without OnDelete": {func(sts *appsv1.StatefulSet) {
			partition := int32(1)
			sts.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{
				Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: &partition},
			}
		}, "set spec.updateStrategy.type to OnDelete"},
		"with words that have no meaning": {func(sts *appsv1.StatefulSet) { sts.Annotations[api.PrepullAnnotation] = "maybe" }, "maybe"},
		"without an annotation":           {func(sts *appsv1.StatefulSet) { sts.Annotations = nil }, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T) {
				m := newModel(t, 1, 1, "OTA")
				db := m.addStatefulSet("OTA", "n1")
				db.change(tt.change)
				m.start()
				db.expect("never marked", "unmarked", "unmarked")
				if got := db.events("PodsAreMadeInOrder"); got != "" {
					t.Errorf("Events: %q", got)
				}
				if got := db.events("InvalidUpdateStrategy"); !strings.Contains(got, tt.event) || (got == "") != (tt.event == "") || strings.Contains(got, "\n") {
					t.Errorf("Events: %q, want one with %q", got, tt.event)
				}
				if n := m.api.count(time.Time{}, "PATCH", "statefulsets/status"); n > 0 {
					t.Errorf("%d patches of the StatefulSet's status, which it would not keep", n)
				}
				db.change(func(sts *appsv1.StatefulSet) {
					sts.Annotations = map[string]string{strategyKey: "OTA"}
					sts.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
				})
				one := revisionOf("app:1")
				db.expect("corrected", "False "+one, "False "+one)
			})
		})
	}
}

// A pod is rolled back where it is, and stays so until its owner upgrades it.
func TestModelTheOwnerOfAStatefulSetsPodGoesBack(t *testing.T) {
	for name, site := range map[string]string{"to the template's image": "", "to the image that is admitted": "site/"} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T) { goesBackInAStatefulSet(t, site) })
		})
	}
}

func goesBackInAStatefulSet(t *testing.T, site string) {
	m := newAskingModel(t, 1, 1, "OTA")
	if site != "" {
		m.rewrite()
	}
	db := m.addStatefulSet("OTA", "n1")
	db.change(func(sts *appsv1.StatefulSet) { sts.Generation++ })
	db.observe("app:2")
	db.make(0, "app:2")
	m.start()
	one, two := revisionOf("app:1"), revisionOf("app:2")
	need := "True " + two + " to " + site + "app:2, 7 s"
	db.expect("one of them is upgraded", "False "+two, need)

	var uid types.UID
	db.changePod(0, func(pod *corev1.Pod) {
		uid, pod.Spec.Containers[0].Image = pod.UID, site+"app:2"
		pod.Annotations[api.RollbackAnnotation] = api.Rollback{Revision: one, From: two, Requested: metav1.Now()}.Encode()
	})
	db.expect("its owner went back", need, need)
	db.changePod(0, func(pod *corev1.Pod) {
		c := api.Condition(pod, api.RolledBackCondition)
		if pod.Spec.Containers[0].Image != site+"app:1" || pod.UID != uid || pod.Labels[appsv1.ControllerRevisionHashLabelKey] != one || c == nil || c.Status != corev1.ConditionTrue {
			t.Errorf("pod %s has %s, labels %v and %v, want the same pod with %sapp:1, rolled back", pod.UID, pod.Spec.Containers[0].Image, pod.Labels, c, site)
		}
	})
	db.make(0, "app:2") // the owner upgrades it, or it moves to another node
	db.expect("the next pod", "False "+two, need)
	if got := db.events("RollbackFailed"); got != "" {
		t.Errorf("Events: %q", got)
	}
}

// It is marked, and gets what its node reports that it runs.
func TestModelAStatefulSetsPodIsUpgradedWithoutTheCloud(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := newAskingModel(t, 1, 1, "OTA")
		db := m.addStatefulSet("OTA", "n1")
		db.change(func(sts *appsv1.StatefulSet) {
			sts.Annotations[api.OfflineUpgradeAnnotation] = api.OfflineUpgradeInPlace
			sts.Generation++
		})
		db.observe("app:2")
		m.start()
		one, two := revisionOf("app:1"), revisionOf("app:2")
		need := "True " + two + " to app:2, 7 s"
		db.expect("before the outage", need, need)
		var uid types.UID
		db.changePod(0, func(pod *corev1.Pod) {
			if next, _ := api.NextOf(pod); !slices.Equal(next.InPlace, []api.ImageChange{{Name: "app", From: "app:1", To: "app:2"}}) {
				t.Errorf("it is marked with %+v", next)
			}
			uid = pod.UID
			report := api.OfflineUpgrade{Revision: two, From: one, Images: []api.TargetImage{{Name: "app", Image: "app:2"}}, Since: metav1.Now()}
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, api.UpgradedOfflineAnnotation, report.Encode())
			c := corev1.PodCondition{Type: api.UpgradedOfflineCondition, Status: corev1.ConditionTrue, Reason: api.ReasonPassed, Message: api.Message(two)}
			pod.Status.Conditions = append(pod.Status.Conditions, c)
		})
		db.expect("its node has reported", "False "+two, need)
		db.changePod(0, func(pod *corev1.Pod) {
			if pod.UID != uid || pod.Spec.Containers[0].Image != "app:2" || pod.Labels[appsv1.ControllerRevisionHashLabelKey] != two {
				t.Errorf("pod %s has %s and labels %v, want the same pod with app:2", pod.UID, pod.Spec.Containers[0].Image, pod.Labels)
			}
		})
	})
}

// Keys of both kinds share a queue, and may have the same namespace and name.
func TestModelAStatefulSetLeavesItsNamesakeAlone(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := newModel(t, 3, 2, rolling)
		m.turn("n3", corev1.ConditionFalse)
		m.api.with(func() { // a node without the DaemonSet's pod
			m.turnLocked(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n4", UID: "n4"}}, corev1.ConditionTrue)
		})
		db := m.addStatefulSet("OTA", "n4")
		m.start()
		one := revisionOf("app:1")
		db.expect("marked", "False "+one, "False "+one)
		m.setImage("app:2")
		time.Sleep(time.Minute)
		db.change(func(sts *appsv1.StatefulSet) { sts.Annotations = nil })
		db.expect("opted out", "unmarked", "unmarked")
		m.turn("n3", corev1.ConditionTrue) // only the nodes' watch shows it
		time.Sleep(time.Minute)
		m.api.mu.Lock()
		defer m.api.mu.Unlock()
		for node, pods := range m.podsLocked() {
			for _, pod := range pods {
				if pod.OwnerReferences[0].Kind == "DaemonSet" && pod.Spec.Containers[0].Image != "app:2" {
					t.Errorf("node %s has pod %s with %s, want app:2", node, pod.Name, pod.Spec.Containers[0].Image)
				}
			}
		}
	})
}
