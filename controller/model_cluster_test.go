package controller_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/api"
)

// model is a cluster with one DaemonSet: an apiserver, Kubernetes' part in a rollout
// (revisions, pods, the scheduler, kubelets), and a controller that runs against it.
// Everything but the controller is played, in the time of a synctest bubble.
type model struct {
	t   testing.TB
	api *apiserver
	max int
	// options are those of controllers, beside logger and registerer; registry has the metrics of the last one.
	options  controller.Options
	registry *prometheus.Registry

	// Guarded by api.mu, like everything that the apiserver keeps.
	failing map[types.UID]bool // pods that are not to be Ready
	runs    map[types.UID]container
	shown   map[types.UID]string // the images that hubs show kubelet in place of the cloud's
	slow    bool                 // kubelet does not restart containers
	changed time.Time            // the template
	faultAt map[string]time.Time
	last    int
	retry   retry
	wrong   []string
	deleted []string // nodes, in order
	stop    func()
}

// retry is the DaemonSet controller's wait after a pod was refused: one for all nodes, which a change of the DaemonSet
// ends.
type retry struct {
	delay   time.Duration
	until   time.Time
	version string // of the DaemonSet
	tries   int
}

const (
	daemonSetName = "web"
	tick          = 100 * time.Millisecond
	startup       = time.Second // from a pod's creation until it is Ready
	grace         = time.Second // from a pod's deletionTimestamp to its end
	// Images with these words in them cannot be pulled, or ask for more than any node has.
	broken, huge = "broken", "huge"
)

// newModel has nodes n1 to nN, each with a pod of image app:1, and runs until the end of
// the test.
func newModel(t testing.TB, nodes, most int, strategy string) *model {
	m := &model{t: t, api: newAPIServer(t), max: most, failing: map[types.UID]bool{}, runs: map[types.UID]container{}, shown: map[types.UID]string{},
		faultAt: map[string]time.Time{}, stop: func() {}}
	m.api.deleting, m.api.patching = m.judge, m.judgePatch
	m.api.with(func() {
		for i := range nodes {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i+1), UID: types.UID(fmt.Sprintf("n%d", i+1))}}
			m.turnLocked(node, corev1.ConditionTrue)
		}
		m.makeLocked(strategy, "app:1")
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { m.run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	time.Sleep(time.Minute)
	return m
}

// makeLocked makes the DaemonSet.
func (m *model) makeLocked(strategy, image string) {
	m.last++
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: daemonSetName, UID: types.UID(fmt.Sprintf("ds%d", m.last)), Generation: 1,
		CreationTimestamp: metav1.Now(),
		Annotations: map[string]string{
			"apps.openyurt.io/update-strategy": strategy, api.MaxUnavailableAnnotation: fmt.Sprint(m.max),
		},
	}}
	m.changed = time.Now()
	ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": daemonSetName}}
	ds.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
	ds.Spec.Template.Labels = ds.Spec.Selector.MatchLabels
	ds.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: image}}
	m.api.putLocked("daemonsets", ds)
}

// start runs a controller until the next one or the end of the test.
func (m *model) start() {
	m.stop()
	o := m.options
	m.registry = prometheus.NewRegistry()
	o.Logger, o.Registerer = slog.New(slog.DiscardHandler), m.registry
	c, err := controller.New(m.api.client(), o)
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1) // one result
	go func() { ended <- c.Run(ctx) }()
	m.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			m.t.Errorf("run: %v", err)
		}
		m.stop = func() {}
	}
	m.t.Cleanup(func() { m.stop() })
}

func (m *model) daemonSetLocked() *appsv1.DaemonSet {
	if o, ok := m.api.objects["daemonsets"][namespace+"/"+daemonSetName]; ok {
		return o.DeepCopyObject().(*appsv1.DaemonSet)
	}
	return nil
}

// change changes the DaemonSet, and its generation if the template is another.
func (m *model) change(f func(*appsv1.DaemonSet)) {
	m.api.with(func() {
		ds := m.daemonSetLocked()
		before := imageOf(ds)
		if f(ds); imageOf(ds) != before {
			ds.Generation++
			m.changed = time.Now()
		}
		m.api.putLocked("daemonsets", ds)
	})
}

func imageOf(ds *appsv1.DaemonSet) string { return ds.Spec.Template.Spec.Containers[0].Image }

func (m *model) setImage(image string) {
	m.change(func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.Containers[0].Image = image })
}

// recreate deletes the DaemonSet and makes one of the same name, while nobody watches.
func (m *model) recreate(image string) {
	m.api.with(func() {
		ds := m.daemonSetLocked()
		m.api.removeLocked("daemonsets", ds)
		for _, resource := range []string{"pods", "controllerrevisions"} {
			for _, o := range m.api.objects[resource] {
				m.api.removeLocked(resource, o)
			}
		}
		m.makeLocked(ds.Annotations["apps.openyurt.io/update-strategy"], image)
		for node := range m.api.objects["nodes"] {
			m.faultAt[strings.TrimPrefix(node, "/")] = time.Now()
		}
	})
	m.api.cut(true)
}

// turnLocked sets a node's Ready condition.
func (m *model) turnLocked(node *corev1.Node, ready corev1.ConditionStatus) {
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.Now()}}
	m.faultAt[node.Name] = time.Now()
	m.api.putLocked("nodes", node)
}

func (m *model) turn(name string, ready corev1.ConditionStatus) {
	m.api.with(func() {
		m.turnLocked(m.api.objects["nodes"]["/"+name].DeepCopyObject().(*corev1.Node), ready)
	})
}

// podsLocked returns all pods by the node that they are for.
func (m *model) podsLocked() map[string][]*corev1.Pod {
	out := map[string][]*corev1.Pod{}
	for _, o := range m.api.objects["pods"] {
		pod := o.(*corev1.Pod)
		out[rollout.NodeOf(pod)] = append(out[rollout.NodeOf(pod)], pod)
	}
	return out
}

func (m *model) nodesLocked() []*corev1.Node {
	var out []*corev1.Node
	for _, name := range slices.Sorted(maps.Keys(m.api.objects["nodes"])) {
		out = append(out, m.api.objects["nodes"][name].(*corev1.Node))
	}
	return out
}

// run plays Kubernetes.
func (m *model) run(ctx context.Context) {
	for ctx.Err() == nil {
		m.api.mu.Lock()
		rest, version := time.Hour, m.api.version
		if ds := m.daemonSetLocked(); ds != nil {
			m.manageLocked(ds)
			if wait := time.Until(m.retry.until); wait > 0 {
				rest = min(rest, wait)
			}
		}
		for _, pods := range m.podsLocked() {
			for _, pod := range pods {
				m.treatLocked(pod.DeepCopy())
				if !pod.DeletionTimestamp.IsZero() || time.Since(pod.CreationTimestamp.Time) <= startup || m.restarts(pod.UID) {
					rest = tick
				}
			}
		}
		changed := m.api.changed
		if m.api.version != version {
			rest = tick
		}
		m.api.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-changed:
			time.Sleep(tick)
		case <-time.After(rest):
		}
	}
}

// hashOf stands for the hash of a template.
func hashOf(image string) string { return strings.ReplaceAll(image, ":", "-") }

// manageLocked does what the DaemonSet controller does.
func (m *model) manageLocked(ds *appsv1.DaemonSet) {
	hash, owner := hashOf(imageOf(ds)), []metav1.OwnerReference{*metav1.NewControllerRef(ds, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
	if ds.Status.ObservedGeneration < ds.Generation {
		newest := int64(0)
		for _, o := range m.api.objects["controllerrevisions"] {
			newest = max(newest, o.(*appsv1.ControllerRevision).Revision)
		}
		revision := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: daemonSetName + "-" + hash, UID: types.UID("revision-" + hash), OwnerReferences: owner,
			Labels: map[string]string{"app": daemonSetName, appsv1.ControllerRevisionHashLabelKey: hash},
		}, Revision: newest + 1}
		revision.Data = runtime.RawExtension{Raw: encode(map[string]any{"spec": map[string]any{"template": ds.Spec.Template}})}
		m.api.putLocked("controllerrevisions", revision)
		ds.Status.ObservedGeneration = ds.Generation
		m.api.putLocked("daemonsets", ds)
	}
	r := &m.retry
	if time.Now().Before(r.until) && r.version == ds.ResourceVersion {
		return
	}
	pods, nodes := m.podsLocked(), m.nodesLocked()
	for i := range nodes {
		node := nodes[(i+r.tries)%len(nodes)]
		if slices.ContainsFunc(pods[node.Name], func(pod *corev1.Pod) bool { return metav1.IsControlledBy(pod, ds) }) {
			continue
		}
		m.last++
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("%s-%d", daemonSetName, m.last), UID: types.UID(fmt.Sprintf("pod%d", m.last)),
			Labels:            map[string]string{"app": daemonSetName, appsv1.ControllerRevisionHashLabelKey: hash},
			CreationTimestamp: metav1.Now(), OwnerReferences: owner,
		}, Spec: *ds.Spec.Template.Spec.DeepCopy()}
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node.Name}}},
			}}},
		}}
		pod.Status.Phase = corev1.PodPending
		if m.api.mutating != nil {
			m.api.mutating(pod)
		}
		if m.api.admitting != nil && m.api.admitting(pod) != nil {
			r.delay = min(max(2*r.delay, 5*time.Millisecond), 1000*time.Second)
			r.until, r.version = time.Now().Add(r.delay), ds.ResourceVersion
			r.tries++
			return
		}
		m.api.putLocked("pods", pod)
	}
	*r = retry{tries: r.tries}
}

// treatLocked does what the scheduler and a kubelet do with a pod.
func (m *model) treatLocked(pod *corev1.Pod) {
	image := pod.Spec.Containers[0].Image
	if pod.Spec.NodeName == "" {
		if !strings.Contains(image, huge) {
			pod.Spec.NodeName = rollout.NodeOf(pod)
			pod.Status.Conditions = nil
			m.api.putLocked("pods", pod)
		} else if pod.Status.Conditions == nil {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
			m.api.putLocked("pods", pod)
		}
		return
	}
	if node := m.api.objects["nodes"]["/"+pod.Spec.NodeName].(*corev1.Node); !nodeReady(node) {
		return
	}
	if !pod.DeletionTimestamp.IsZero() {
		if time.Since(pod.DeletionTimestamp.Time) >= grace {
			m.api.removeLocked("pods", pod)
		}
		return
	}
	if time.Since(pod.CreationTimestamp.Time) < startup {
		return
	}
	if !m.slow {
		m.startLocked(pod)
	}
	trouble := ""
	switch {
	case m.restarts(pod.UID):
		trouble = "ContainerCreating"
	case strings.Contains(image, broken):
		trouble = "ImagePullBackOff"
	case m.failing[pod.UID]:
		trouble = "CrashLoopBackOff"
	}
	m.reportLocked(pod, trouble)
}

// container is what runs in a pod, and since when it has other images than at first.
type container struct {
	image     string
	restarted time.Time
}

// startLocked restarts the container of a pod that has another image.
func (m *model) startLocked(pod *corev1.Pod) {
	image := cmp.Or(m.shown[pod.UID], pod.Spec.Containers[0].Image)
	c, runs := m.runs[pod.UID]
	if runs && c.image != image {
		c.restarted = time.Now()
		if strings.Contains(image, broken) {
			m.faultAt[pod.Spec.NodeName] = time.Now()
		}
	}
	c.image = image
	m.runs[pod.UID] = c
}

// restarts reports whether the container of a pod has just been restarted.
func (m *model) restarts(pod types.UID) bool {
	r := m.runs[pod].restarted
	return !r.IsZero() && time.Since(r) < startup
}

func (m *model) reportLocked(pod *corev1.Pod, trouble string) {
	ready, state := corev1.ConditionTrue, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	if trouble != "" {
		ready, state = corev1.ConditionFalse, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: trouble}}
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			if c.Status == ready {
				return
			}
			c.Status, c.LastTransitionTime = ready, metav1.Now()
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: state}}
			m.api.putLocked("pods", pod)
			return
		}
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Now()})
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: state}}
	m.api.putLocked("pods", pod)
}

func nodeReady(node *corev1.Node) bool {
	return node.Status.Conditions[0].Status == corev1.ConditionTrue
}

func podReady(pod *corev1.Pod) bool {
	c := api.Condition(pod, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

func available(pods []*corev1.Pod) bool {
	return len(pods) == 1 && pods[0].DeletionTimestamp.IsZero() && podReady(pods[0])
}
