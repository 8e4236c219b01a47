package controller_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/api"
)

// admitNot has admission refuse new pods on these nodes from now on.
func (m *model) admitNot(nodes ...string) {
	m.api.with(func() {
		m.api.admitting = func(pod *corev1.Pod) error {
			if slices.Contains(nodes, rollout.NodeOf(pod)) {
				return apierrors.NewForbidden(podResource, pod.Name, errViolates)
			}
			return nil
		}
	})
}

// missing is what a Node says that it lacks, each with why.
func (m *model) missing(node string) string {
	m.api.mu.Lock()
	defer m.api.mu.Unlock()
	list, err := api.MissingOn(m.api.objects["nodes"]["/"+node])
	if err != nil {
		m.t.Error(err)
	}
	var out []string
	for _, l := range list {
		out = append(out, l.Kind+" "+l.Namespace+"/"+l.Name+": "+l.Why)
	}
	return strings.Join(out, "\n")
}

// evict ends the pod of a node, as somebody does who may.
func (m *model) evict(node string) {
	m.api.with(func() { m.api.endLocked(m.podsLocked()[node][0].DeepCopy()) })
}

// gets waits for a node's pod for this long.
func (m *model) gets(node string, most time.Duration) bool {
	for begin := time.Now(); time.Since(begin) < most; time.Sleep(tick) {
		m.api.mu.Lock()
		n := len(m.podsLocked()[node])
		m.api.mu.Unlock()
		if n > 0 {
			return true
		}
	}
	return false
}

// The DaemonSet controller waits up to 1,000 s once a pod was refused, for all nodes. A node whose pod would be let in has
// it within seconds all the same, and so has the other once the cause is mended; with the right to ask, and, a little
// later, without it. Meanwhile the node knows what it lacks, and why.
func TestModelWhatIsMissingComesBackOnceItIsLetIn(t *testing.T) {
	for name, tt := range map[string]struct {
		strategy string
		asks     bool
		words    string
	}{
		"OTA":                        {"OTA", true, "the apiserver refuses it: " + violates},
		"AdvancedRollingUpdate":      {rolling, true, "the apiserver refuses it: " + violates},
		"without the right to ask":   {"OTA", false, "Kubernetes has not made the pod yet"},
		"without the right, rolling": {rolling, false, "Kubernetes has not made the pod yet"},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T) {
				m := newModel(t, 5, 5, tt.strategy)
				if tt.asks {
					m.options.Namespace = namespace
				}
				m.start()
				time.Sleep(time.Minute)
				m.admitNot("n2", "n4", "n5")
				m.evict("n2")
				m.evict("n4")
				time.Sleep(8 * time.Minute)
				m.evict("n1")
				if !m.gets("n1", 8*time.Second) {
					t.Error("n1 has no pod after 8s, though it would be let in")
				}
				if got, want := m.missing("n2"), "DaemonSet default/web: "+tt.words; got != want {
					t.Errorf("n2 lacks\n%s\nwant\n%s", got, want)
				}
				if got := m.missing("n1"); got != "" {
					t.Errorf("n1 lacks %s", got)
				}
				time.Sleep(4 * time.Minute) // those who mend something at once have done so
				begin := time.Now()
				time.Sleep(5 * time.Minute)
				if tt.asks {
					m.fewer(2*5*60/30+1, begin, "POST", "pods")
					m.fewer(0, begin, "PATCH", "daemonsets/status")
				}
				m.fewer(5*60/30+1, begin, "PATCH", "daemonsets/status")
				m.fewer(0, begin, "PATCH", "nodes/status")
				m.admitNot()
				most := 35 * time.Second
				if tt.asks {
					most = 33 * time.Second // it has waited for more than 10 minutes
				}
				if !m.gets("n2", most) || !m.gets("n4", time.Second) {
					t.Errorf("n2 and n4 have no pods %v after the cause was mended", most)
				}
				time.Sleep(time.Minute)
				if got := m.missing("n2") + m.missing("n4"); got != "" {
					t.Errorf("n2 and n4 have their pods, and lack %s", got)
				}
				if !tt.asks {
					return
				}
				m.admitNot("n2")
				m.evict("n2")
				time.Sleep(time.Minute)
				m.admitNot()
				if !m.gets("n2", 5*time.Second) {
					t.Error("n2 has no pod 5s after the cause was mended")
				}
			})
		})
	}
}

// A pod that the scheduler does not place is missing on its node as well, which does not see it; and the next revision,
// which there is room for, comes within seconds once it is let in.
func TestModelANodeIsToldOfAPodWithoutRoom(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := newAskingModel(t, 3, 1, rolling)
		m.start()
		m.setImage("app:" + huge)
		time.Sleep(2 * time.Minute)
		lacks := m.missing("n1") + m.missing("n2") + m.missing("n3")
		if !strings.HasPrefix(lacks, "DaemonSet default/web: ") || !strings.Contains(lacks, "scheduler") && !strings.Contains(lacks, "not scheduled") {
			t.Errorf("the nodes lack %q", lacks)
		}
		m.admit("app:2")
		m.setImage("app:2")
		begin := time.Now()
		time.Sleep(6 * time.Minute)
		m.fewer(6*60/3+5, begin, "POST", "pods")
		m.admit("")
		for mended := time.Now(); m.updated() == 0; time.Sleep(tick) {
			if time.Since(mended) > 5*time.Second {
				t.Fatal("the node without a pod has none 5s after the cause was mended")
			}
		}
		time.Sleep(time.Minute)
		if lacks := m.missing("n1") + m.missing("n2") + m.missing("n3"); lacks != "" || m.updated() != 3 {
			t.Errorf("%d nodes are updated, and the nodes lack %q", m.updated(), lacks)
		}
	})
}

// After a restart of the controller nothing is taken back before every workload has been looked at, and what is about
// a workload that is gone is.
func TestModelWhatNodesAreToldOutlivesTheController(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := newAskingModel(t, 3, 1, "OTA")
		m.api.with(func() {
			node := m.api.objects["nodes"]["/n3"].DeepCopyObject().(*corev1.Node)
			node.Annotations = map[string]string{api.MissingAnnotation: api.EncodeMissing([]api.MissingWorkload{{Kind: "DaemonSet", Namespace: "default", Name: "gone"}})}
			m.api.putLocked("nodes", node)
		})
		m.start()
		m.admitNot("n2")
		m.evict("n2")
		time.Sleep(2 * time.Minute)
		if got := m.missing("n3"); got != "" {
			t.Errorf("n3 lacks %q", got)
		}
		if m.missing("n2") == "" {
			t.Error("n2 was not told")
		}
		m.stop()
		m.start()
		for range 20 {
			if time.Sleep(10 * time.Second); m.missing("n2") == "" {
				t.Error("the new controller has taken it back")
			}
		}
	})
}
