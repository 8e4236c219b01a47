package autonomy

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/controller/autonomy"
	"github.com/edgehub-io/edgehub/ota/api"
)

// A node is away for longer than pods tolerate. With the annotation its pods stay, and there are no others;
// without, it is as Kubernetes does it.
func TestPodsStayOnANodeThatIsAway(t *testing.T) {
	startController(t)
	kept, plain := newSite(t, "kept", "1h"), newSite(t, "plain", "")
	kept.awaitTolerations("3600")
	plain.awaitTolerations(toleration)
	kept.awaitCondition(corev1.ConditionTrue, autonomy.ReasonApplied, "for up to 1h0m0s")
	kept.awaitEvent(autonomy.ReasonApplied)
	if out, err := env.cluster.Kubectl(t.Context(), "wait", "node/kept", "--for=condition=apps.openyurt.io/Autonomy", "--timeout=5m"); err != nil {
		t.Errorf("kubectl wait: %v\n%s", err, out)
	}

	kept.cutOff()
	plain.cutOff()
	plain.awaitEvicted()
	kept.stayed()
	since, _ := autonomy.AwaySince(plain.node())
	t.Logf("without the annotation, pods were evicted %v after the node was tainted", plain.evictedAfter(since))

	kept.annotate(api.AutonomyAnnotation, "7d")
	kept.awaitCondition(corev1.ConditionTrue, autonomy.ReasonInvalid, `"7d"`, "pods stay as they are")
	kept.awaitTolerations("3600")
	kept.connect()
	kept.stayed()

	kept.annotate(api.AutonomyAnnotation, "0")
	kept.awaitTolerations("forever")
	kept.annotate(api.AutonomyAnnotation, "")
	kept.awaitTolerations(toleration)
	kept.awaitCondition(corev1.ConditionFalse, autonomy.ReasonRemoved)
	for _, workload := range kept.workloads() {
		if pod := kept.pods(workload)[0]; autonomy.Held(pod) {
			t.Errorf("pod %s still has annotations: %v", pod.Name, pod.Annotations)
		}
	}
	kept.cutOff()
	kept.awaitEvicted()
}

// What changes while the node is away has the same effect as before: taint eviction does not move an eviction that it has
// scheduled, so this needs more than other seconds.
func TestChangesDuringAnOutage(t *testing.T) {
	startController(t)
	for name, tt := range map[string]struct {
		before string // the annotation
		key    string
		after  string
		reason string // of the condition
	}{
		"removed-1h":   {"1h", api.AutonomyAnnotation, "", autonomy.ReasonRemoved},
		"removed-0":    {"0", api.AutonomyAnnotation, "", autonomy.ReasonRemoved},
		"shortened-1h": {"1h", api.AutonomyAnnotation, "1s", autonomy.ReasonApplied},
		"released-1h":  {"1h", api.ReleasedAnnotation, time.Now().Format(time.RFC3339), autonomy.ReasonReleased},
		"released-0":   {"0", api.ReleasedAnnotation, time.Now().Format(time.RFC3339), autonomy.ReasonReleased},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, name, tt.before)
			s.awaitCondition(corev1.ConditionTrue, autonomy.ReasonApplied)
			s.cutOff()
			s.stayed()
			began := time.Now()
			s.annotate(tt.key, tt.after)
			s.awaitEvicted()
			t.Logf("evicted %v after the annotation was changed", s.evictedAfter(began))
			s.awaitCondition(map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}[tt.reason == autonomy.ReasonApplied], tt.reason)

			s.connect()
			s.await("pods run again", func() bool {
				for _, workload := range s.workloads() {
					if all := s.pods(workload); len(all) != 1 || all[0].UID == s.uids[workload] || all[0].Status.Phase != corev1.PodRunning {
						return false
					}
				}
				return true
			})
			if tt.key == api.ReleasedAnnotation {
				s.await("the release is over", func() bool { return s.node().Annotations[api.ReleasedAnnotation] == "" })
				s.awaitCondition(corev1.ConditionTrue, autonomy.ReasonApplied)
			}
		})
	}
	// Cloud controllers delete Nodes whose machine they do not find. kubelet registers the Node again when it restarts.
	t.Run("deleted", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, "deleted", "1h")
		s.awaitTolerations("3600")
		s.cutOff()
		s.stayed()
		began := time.Now()
		if err := env.fleet.RemoveNode(t.Context(), s.name); err != nil {
			t.Fatal(err)
		}
		for _, workload := range s.workloads() {
			s.await("PodGC deletes the pod of "+workload+", and another one runs elsewhere", func() bool {
				all := s.pods(workload)
				return len(all) == 1 && all[0].UID != s.uids[workload] && all[0].Spec.NodeName == spare
			})
		}
		t.Logf("pods were deleted within %v", time.Since(began).Round(time.Second))
		if err := env.fleet.AddNode(t.Context(), s.name, map[string]string{"name": s.name}); err != nil {
			t.Fatal(err)
		}
		s.settle()
		s.awaitTolerations(toleration) // nothing asks for more any longer
		if c := autonomy.ConditionOf(s.node()); c != nil {
			t.Errorf("the condition is %+v", c)
		}
		s.annotate(api.AutonomyAnnotation, "1h")
		s.awaitTolerations("3600")
		s.awaitCondition(corev1.ConditionTrue, autonomy.ReasonApplied)
		s.cutOff()
		s.stayed()
	})
	// Pods of the other one are evicted when those of this one would have been.
	t.Run("prolonged", func(t *testing.T) {
		t.Parallel()
		s, other := newSite(t, "prolonged", "30s"), newSite(t, "other", "30s")
		s.awaitTolerations("30")
		other.awaitTolerations("30")
		s.cutOff()
		other.cutOff()
		s.annotate(api.AutonomyAnnotation, "1h")
		s.awaitTolerations("3600")
		other.awaitEvicted()
		s.stayed()
	})
}
