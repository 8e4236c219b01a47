package autonomy

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/autonomy"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// spare is the node where replacements start.
const spare = "spare"

// site is a node with a Deployment and a StatefulSet, of one pod each, which begin there and may move to the spare one.
type site struct {
	t    *testing.T
	name string
	uids map[string]types.UID // of the first pods, by workload
}

// newSite makes one; annotation is the duration, "" for none.
func newSite(t *testing.T, name, annotation string) *site {
	t.Helper()
	s := &site{t: t, name: name, uids: map[string]types.UID{}}
	if err := env.fleet.AddNode(t.Context(), name, map[string]string{"name": name}); err != nil {
		t.Fatal(err)
	}
	if annotation != "" {
		s.annotate(api.AutonomyAnnotation, annotation)
	}
	s.deploy()
	return s
}

// workloads are the names of both, which are labels of their pods.
func (s *site) workloads() []string { return []string{s.name + "-web", s.name + "-db"} }

func (s *site) deploy() {
	s.t.Helper()
	on := func(node, label string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: label, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}
	}
	spareToo := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{spare}}}}
	template := func(workload string) (*metav1.LabelSelector, corev1.PodTemplateSpec) {
		labels := map[string]string{"app": workload, played: ""}
		out := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
		out.Spec.Containers = []corev1.Container{{Name: "app", Image: "app"}}
		out.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution:  &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{on(s.name, "name"), spareToo}},
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 100, Preference: on(s.name, "name")}},
		}}
		return &metav1.LabelSelector{MatchLabels: labels}, out
	}
	names := s.workloads()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: names[0]}}
	d.Spec.Selector, d.Spec.Template = template(names[0])
	if _, err := env.admin.AppsV1().Deployments("default").Create(s.t.Context(), d, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	sts := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: names[1]}}
	sts.Spec.Selector, sts.Spec.Template = template(names[1])
	if _, err := env.admin.AppsV1().StatefulSets("default").Create(s.t.Context(), sts, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.settle()
}

// settle waits until the first pods run on the node, which are those that it knows from then on.
func (s *site) settle() {
	s.t.Helper()
	for _, workload := range s.workloads() {
		s.await("a pod of "+workload+" runs there", func() bool {
			all := s.pods(workload)
			for _, pod := range all {
				if pod.Spec.NodeName == spare { // the scheduler has not seen the other node yet
					// Of a StatefulSet, the next pod with this name may be on the right node already.
					only := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
					err := env.admin.CoreV1().Pods("default").Delete(s.t.Context(), pod.Name, only)
					if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
						s.t.Fatal(err)
					}
				}
			}
			if len(all) != 1 || all[0].Spec.NodeName != s.name || all[0].Status.Phase != corev1.PodRunning || all[0].DeletionTimestamp != nil {
				return false
			}
			s.uids[workload] = all[0].UID
			return true
		})
	}
}

func (s *site) await(what string, done func() bool) {
	s.t.Helper()
	poll.Eventually(s.t, s.name+": "+what, done)
}

func (s *site) cutOff() {
	s.t.Helper()
	if err := env.fleet.CutOff(s.t.Context(), s.name); err != nil {
		s.t.Fatal(err)
	}
	s.await("the node is tainted", func() bool { _, away := autonomy.AwaySince(s.node()); return away })
}

func (s *site) connect() {
	s.t.Helper()
	if err := env.fleet.Connect(s.t.Context(), s.name); err != nil {
		s.t.Fatal(err)
	}
	s.await("the node is back", func() bool { return !autonomy.Away(s.node()) })
}

// annotate sets an annotation of the node; "" removes it.
func (s *site) annotate(key, value string) {
	s.t.Helper()
	if err := annotate(s.t.Context(), s.name, key, value); err != nil {
		s.t.Fatal(err)
	}
}

func annotate(ctx context.Context, node, key, value string) error {
	text := "null"
	if value != "" {
		text = strconv.Quote(value)
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, key, text)
	_, err := env.admin.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func (s *site) node() *corev1.Node {
	s.t.Helper()
	n, err := env.admin.CoreV1().Nodes().Get(s.t.Context(), s.name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// pods returns those of a workload.
func (s *site) pods(workload string) (out []*corev1.Pod) {
	s.t.Helper()
	list, err := env.admin.CoreV1().Pods("default").List(s.t.Context(), metav1.ListOptions{LabelSelector: "app=" + workload})
	if err != nil {
		s.t.Fatal(err)
	}
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out
}

// awaitTolerations waits until the first pods tolerate not-ready and unreachable for so many seconds.
func (s *site) awaitTolerations(want string) {
	s.t.Helper()
	s.await("pods tolerate "+want, func() bool {
		for _, workload := range s.workloads() {
			for _, pod := range s.pods(workload) {
				if tolerates(pod) != want+" "+want {
					return false
				}
			}
		}
		return true
	})
}

// stayed fails unless both workloads have their first pod and no other.
func (s *site) stayed() {
	s.t.Helper()
	for _, workload := range s.workloads() {
		all := s.pods(workload)
		if len(all) != 1 || all[0].UID != s.uids[workload] || all[0].DeletionTimestamp != nil {
			s.t.Errorf("pods of %s, of which one was to stay: %+v", workload, all)
		}
	}
}

// awaitEvicted waits until both first pods are on their way out, and the Deployment's replacement runs elsewhere. The
// StatefulSet's waits until its node is back, as ever.
func (s *site) awaitEvicted() {
	s.t.Helper()
	for i, workload := range s.workloads() {
		s.await("the pod of "+workload+" is evicted", func() bool {
			out, other := false, false
			for _, pod := range s.pods(workload) {
				out = out || pod.UID == s.uids[workload] && pod.DeletionTimestamp != nil
				other = other || pod.UID != s.uids[workload] && pod.Spec.NodeName == spare
			}
			return out && other == (i == 0)
		})
	}
}

// evictedAfter returns how long after a time the last of both first pods was deleted; seconds are whole ones.
func (s *site) evictedAfter(began time.Time) (out time.Duration) {
	s.t.Helper()
	for _, workload := range s.workloads() {
		for _, pod := range s.pods(workload) {
			if pod.UID == s.uids[workload] && pod.DeletionTimestamp != nil {
				grace := time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
				out = max(out, pod.DeletionTimestamp.Add(-grace).Sub(began))
			}
		}
	}
	return out.Round(time.Second)
}

// tolerates returns for how long a pod tolerates that its node is not ready, and unreachable.
func tolerates(pod *corev1.Pod) string {
	of := map[string]string{}
	for _, t := range pod.Spec.Tolerations {
		of[t.Key] = "forever"
		if t.TolerationSeconds != nil {
			of[t.Key] = strconv.FormatInt(*t.TolerationSeconds, 10)
		}
	}
	return of[corev1.TaintNodeNotReady] + " " + of[corev1.TaintNodeUnreachable]
}

func (s *site) awaitCondition(status corev1.ConditionStatus, reason string, words ...string) {
	s.t.Helper()
	s.await("the condition is "+reason, func() bool {
		c := autonomy.ConditionOf(s.node())
		if c == nil || c.Status != status || c.Reason != reason {
			return false
		}
		for _, word := range words {
			if !strings.Contains(c.Message, word) {
				return false
			}
		}
		return true
	})
}

func (s *site) awaitEvent(reason string) {
	s.t.Helper()
	s.await("an Event has the reason "+reason, func() bool {
		list, err := env.admin.CoreV1().Events("").List(s.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Node,involvedObject.name=" + s.name + ",reason=" + reason})
		if err != nil {
			s.t.Fatal(err)
		}
		return len(list.Items) > 0
	})
}
