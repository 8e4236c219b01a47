package controller_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// stateful is a StatefulSet of two pods, web-5 and web-6, in the namespace of a DaemonSet of the
// same name that has not opted in.
type stateful struct{ *fixture }

func newStatefulSet(t *testing.T, strategy string, change ...func(*appsv1.StatefulSet)) *stateful {
	t.Helper()
	s := &stateful{newDaemonSet(t, nil)}
	replicas := int32(2)
	sts := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name, Annotations: map[string]string{strategyKey: strategy}}}
	sts.Spec = appsv1.StatefulSetSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}, MinReadySeconds: 3,
		Ordinals:            &appsv1.StatefulSetOrdinals{Start: 5},
		PodManagementPolicy: appsv1.ParallelPodManagement, // without a kubelet, no pod gets Ready
		UpdateStrategy:      appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType},
	}
	sts.Spec.Template.Labels = sts.Spec.Selector.MatchLabels
	sts.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:1"}}
	sts.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	for _, c := range change {
		c(sts)
	}
	if _, err := env.Admin.AppsV1().StatefulSets(s.Namespace).Create(t.Context(), sts, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // or its pods would come back while the DaemonSet's fixture deletes all
		if err := env.Admin.AppsV1().StatefulSets(s.Namespace).Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	poll.Eventually(t, "the StatefulSet has its pods, on nodes", func() bool {
		pods := s.stateful()
		for _, pod := range pods {
			if pod.Spec.NodeName == "" {
				return false
			}
		}
		return len(pods) == int(*sts.Spec.Replicas)
	})
	return s
}

func (s *stateful) patch(format string, args ...any) {
	s.t.Helper()
	_, err := env.Admin.AppsV1().StatefulSets(s.Namespace).Patch(s.t.Context(), name, types.StrategicMergePatchType,
		fmt.Appendf(nil, format, args...), metav1.PatchOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
}

// stateful returns the StatefulSet's pods by name.
func (s *stateful) stateful() map[string]*corev1.Pod {
	s.t.Helper()
	list, err := env.Admin.CoreV1().Pods(s.Namespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: "app=db"})
	if err != nil {
		s.t.Fatal(err)
	}
	out := map[string]*corev1.Pod{}
	for i := range list.Items {
		out[list.Items[i].Name] = &list.Items[i]
	}
	return out
}

// expect waits until the two pods are marked so.
func (s *stateful) expect(first, second string) {
	s.t.Helper()
	want, got := map[string]string{"web-5": first, "web-6": second}, map[string]string{}
	defer func() {
		if s.t.Failed() {
			s.t.Logf("the pods are %v, want %v", got, want)
		}
	}()
	poll.Eventually(s.t, fmt.Sprintf("the pods are %v", want), func() bool {
		clear(got)
		for name, pod := range s.stateful() {
			got[name] = describe(pod)
		}
		return maps.Equal(got, want)
	})
}

func (s *stateful) awaitTold(reason, words string) {
	s.t.Helper()
	poll.Eventually(s.t, fmt.Sprintf("an Event %s says %q", reason, words), func() bool {
		return strings.Contains(s.Kubectl("get", "events", "--field-selector", "involvedObject.kind=StatefulSet,reason="+reason,
			"-o", "jsonpath={.items[*].message}"), words)
	})
}

// upgrade replaces a pod as a hub does for POST upgrade, and returns the next of its name, once it is on a node.
func (s *stateful) upgrade(pod *corev1.Pod) (next *corev1.Pod) {
	s.t.Helper()
	now := int64(0)
	err := env.Admin.CoreV1().Pods(s.Namespace).Delete(s.t.Context(), pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	poll.Eventually(s.t, "there is another "+pod.Name, func() bool {
		next = s.stateful()[pod.Name]
		return next != nil && next.UID != pod.UID && next.Spec.NodeName != ""
	})
	return next
}

// labelNode gives a node a label, until the end of the test.
func labelNode(t *testing.T, node, key, value string) {
	t.Helper()
	patch := func(ctx context.Context, value string) {
		_, err := env.Admin.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, key, value), metav1.PatchOptions{})
		if err != nil {
			t.Error(err)
		}
	}
	patch(t.Context(), fmt.Sprintf("%q", value))
	t.Cleanup(func() { patch(context.Background(), "null") })
}

// The whole life of an upgrade: the pods of one name after the other.
func TestAStatefulSetIsUpgradedByTheOwnersOfItsNodes(t *testing.T) {
	s := newStatefulSet(t, "OTA")
	r := start(t)
	s.expect(upToDate, upToDate)
	s.awaitTold("UpToDate", "every pod runs")
	before := s.stateful()

	// The new version runs on one node only, which stands in the way of no upgrade: the next pod moves there.
	labelNode(t, "node3", "site", "b")
	s.patch(`{"spec":{"template":{"spec":{"nodeSelector":{"site":"b"},"containers":[{"name":"app","image":"app:2"}]}}}}`)
	s.expect(needsOne, needsOne)
	s.awaitTold("UpgradeAvailable", "2 of 2 pods")
	sts, err := env.Admin.AppsV1().StatefulSets(s.Namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	target, ok, err := api.TargetOf(s.stateful()["web-5"])
	if !ok || err != nil || target.Revision != sts.Status.UpdateRevision || target.Containers[0].Image != "app:2" || target.MinReadySeconds != 3 {
		t.Errorf("the target is %+v, %t, %v; want revision %s with app:2", target, ok, err, sts.Status.UpdateRevision)
	}

	next := s.upgrade(before["web-6"])
	s.expect(needsOne, upToDate)
	if s.stateful()["web-5"].UID != before["web-5"].UID || hashOf(next) != target.Revision || next.Spec.Containers[0].Image != "app:2" || next.Spec.NodeName != "node3" {
		t.Errorf("web-6 is %s with %s on %s, want another of the new revision on node3, and web-5 as it was", hashOf(next), next.Spec.Containers[0].Image, next.Spec.NodeName)
	}

	// web-5 never left the revision that is the target again.
	s.Kubectl("rollout", "undo", "statefulset/"+name)
	s.expect(upToDate, needsOne)

	s.patch(`{"metadata":{"annotations":{%q:null}}}`, strategyKey)
	s.expect(unmarked, unmarked)
	s.awaitTold("UpgradeMarksRemoved", "the StatefulSet no longer asks for OTA: 2 pods")
	if got := s.Kubectl("get", "events", "--field-selector", "reason=PodsAreMadeInOrder", "-o", "name"); got != "" {
		t.Errorf("its pods are made in parallel, and there is %s", got)
	}
	if n := r.Calls()["DELETE pods"]; n != 0 {
		t.Errorf("the controller deleted %d pods", n)
	}
	if s.marks()[unmarked] != nodes {
		t.Errorf("the pods of the DaemonSet are %v", s.marks())
	}
}

// A volume on a node's disk is bound to the ordinal, and so is the next pod to that node. A rollback does not
// replace the pod.
func TestTheNextPodOfAStatefulSetKeepsItsVolume(t *testing.T) {
	labelNode(t, "node2", corev1.LabelHostname, "node2")
	noClass, one, size := "", int32(1), corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	s := newStatefulSet(t, "OTA", func(sts *appsv1.StatefulSet) {
		sts.Spec.Replicas = &one
		claim := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}}
		claim.Spec = corev1.PersistentVolumeClaimSpec{AccessModes: modes, StorageClassName: &noClass, Resources: corev1.VolumeResourceRequirements{Requests: size}}
		sts.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{claim}

		volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: sts.Namespace + "-data"}}
		volume.Spec = corev1.PersistentVolumeSpec{
			AccessModes: modes, Capacity: size,
			ClaimRef:               &corev1.ObjectReference{Namespace: sts.Namespace, Name: "data-web-5"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/data"}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"node2"}}},
			}}}},
		}
		if _, err := env.Admin.CoreV1().PersistentVolumes().Create(t.Context(), volume, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := env.Admin.CoreV1().PersistentVolumes().Delete(context.Background(), volume.Name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	})
	claimOf := func() *corev1.PersistentVolumeClaim {
		claim, err := env.Admin.CoreV1().PersistentVolumeClaims(s.Namespace).Get(t.Context(), "data-web-5", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return claim
	}
	before, claim := s.stateful()["web-5"], claimOf()
	start(t)
	s.patch(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"app:2"}]}}}}`)
	poll.Eventually(t, "web-5 needs an upgrade", func() bool { return describe(s.stateful()["web-5"]) == needsOne })
	next := s.upgrade(before)
	if before.Spec.NodeName != "node2" || next.Spec.NodeName != "node2" || claimOf().UID != claim.UID || claimOf().Spec.VolumeName != claim.Spec.VolumeName {
		t.Errorf("web-5 was on %s and is on %s, with another claim: %t", before.Spec.NodeName, next.Spec.NodeName, claimOf().UID != claim.UID)
	}

	// Its owner goes back, and Kubernetes counts the pod as one of the earlier revision, and leaves it alone.
	wish := api.Rollback{Revision: hashOf(before), From: hashOf(next), Requested: metav1.Now()}.Encode()
	s.patchStatus("web-5", fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, api.RollbackAnnotation, wish))
	poll.Eventually(t, "web-5 is rolled back", func() bool {
		sts, err := env.Admin.AppsV1().StatefulSets(s.Namespace).Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && sts.Status.UpdatedReplicas == 0 && describe(s.stateful()["web-5"]) == "True/RolledBackByOwner, annotated=true"
	})
	if pod := s.stateful()["web-5"]; pod.UID != next.UID || !pod.DeletionTimestamp.IsZero() || pod.Spec.Containers[0].Image != "app:1" || hashOf(pod) != hashOf(before) {
		t.Errorf("web-5 is %s of %s with %s, want the same pod with app:1", pod.UID, hashOf(pod), pod.Spec.Containers[0].Image)
	}
}
