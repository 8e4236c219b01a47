package tolerations

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/edgehub-io/edgehub/controller/autonomy"
	"github.com/edgehub-io/edgehub/ota/api"
)

const hour, day = "3600 3600 held", "86400 86400 held"

// unreachable is how Kubernetes taints a node that is away.
var unreachable = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}}

// world is a cluster with a controller that runs.
type world struct {
	t       *testing.T
	client  *fake.Clientset
	metrics *Metrics // of the last controller
	barePod func(context.Context) (*corev1.Pod, error)
	log     io.Writer // nil discards it
}

// start returns a cluster with a node, which has these annotations, and pods on it.
func start(t *testing.T, n *corev1.Node, pods ...*corev1.Pod) *world {
	t.Helper()
	client := fake.NewClientset(n)
	for _, p := range pods {
		if err := client.Tracker().Add(p); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{t: t, client: client}
	w.run()
	return w
}

// run runs a controller until the returned function is called, or the test ends.
func (w *world) run() (stop func()) {
	fleet := autonomy.Fleet{Selector: labels.SelectorFromSet(labels.Set{"edge": ""}), Selected: autonomy.For(24 * time.Hour), Defaults: autonomy.Same(300)}
	w.metrics = NewMetrics()
	c := &Controller{Client: w.client, Fleet: fleet, Name: "test", Metrics: w.metrics, BarePod: w.barePod,
		Logger: slog.New(slog.NewTextHandler(cmp.Or(w.log, io.Discard), nil))}
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-ended
	}
	w.t.Cleanup(stop)
	return stop
}

// after waits for so long, and until nothing moves any more.
func (w *world) after(d time.Duration) {
	time.Sleep(d) // in a bubble of synctest
	synctest.Wait()
}

func (w *world) node() *corev1.Node {
	w.t.Helper()
	n, err := w.client.CoreV1().Nodes().Get(w.t.Context(), "node", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// change changes the node.
func (w *world) change(change func(*corev1.Node)) {
	w.t.Helper()
	n := w.node()
	change(n)
	if err := w.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), n, ""); err != nil {
		w.t.Fatal(err)
	}
}

// wantCondition compares status and reason of the node's condition.
func (w *world) wantCondition(want string) {
	w.t.Helper()
	got := ""
	if c := autonomy.ConditionOf(w.node()); c != nil {
		got = string(c.Status) + " " + c.Reason
	}
	if got != want {
		w.t.Errorf("the condition is %q, want %q", got, want)
	}
}

// wantMetrics compares those about nodes.
func (w *world) wantMetrics(want string) {
	w.t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(w.metrics)
	families, err := registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch value := m.GetGauge().GetValue(); {
			case value == 0:
			case f.GetName() == "edgehub_controller_autonomy_nodes":
				got = append(got, fmt.Sprintf("%v %s", value, m.GetLabel()[0].GetValue()))
			default:
				got = append(got, fmt.Sprintf("away for %v", time.Duration(value)*time.Second))
			}
		}
	}
	if text := strings.Join(got, ", "); text != want {
		w.t.Errorf("metrics are %q, want %q", text, want)
	}
}

// want compares what a pod tolerates.
func (w *world) want(name, want string) {
	w.t.Helper()
	p, err := w.client.CoreV1().Pods("ns").Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	got := ""
	for _, t := range p.Spec.Tolerations {
		seconds := "forever"
		if t.TolerationSeconds != nil {
			seconds = strconv.FormatInt(*t.TolerationSeconds, 10)
		}
		got += seconds + " "
	}
	if autonomy.Held(p) {
		got += "held "
	}
	if got != want+" " {
		w.t.Errorf("%s has %s, want %s", name, got, want)
	}
}

// readsPods reports whether pods were listed or watched.
func (w *world) readsPods() bool {
	for _, a := range w.client.Actions() {
		if a.GetResource().Resource == "pods" && (a.GetVerb() == "list" || a.GetVerb() == "watch") {
			return true
		}
	}
	return false
}

// node returns one with annotations, by key and value.
func node(pairs ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "u", Annotations: map[string]string{}}}
	for i := 0; i < len(pairs); i += 2 {
		n.Annotations[pairs[i]] = pairs[i+1]
	}
	return n
}

func pod(name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid"}}
	p.Spec.NodeName = "node"
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300)),
		})
	}
	return p
}

// withSeconds returns a pod that tolerates so much.
func withSeconds(name string, seconds int64) *corev1.Pod {
	p := pod(name)
	for i := range p.Spec.Tolerations {
		p.Spec.Tolerations[i].TolerationSeconds = &seconds
	}
	return p
}

func ofDaemonSet(p *corev1.Pod) *corev1.Pod {
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Controller: new(true)}}
	return p
}

func TestWhenPodsAreWatched(t *testing.T) {
	for name, tt := range map[string]struct {
		annotation, reason string
		reads              bool
		want               string // of the condition afterwards
	}{
		"a node that asks for nothing":           {"", "", false, ""},
		"a node that asks for it":                {"1h", "", true, "True AutonomyApplied"},
		"a node that asked when the last ended":  {"", autonomy.ReasonApplied, true, "False AutonomyRemoved"},
		"a node that asked long ago":             {"", autonomy.ReasonRemoved, false, "False AutonomyRemoved"},
		"a node whose annotation cannot be read": {"7d", "", true, "False InvalidAutonomy"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := node()
				if tt.annotation != "" {
					n = node(api.AutonomyAnnotation, tt.annotation)
				}
				if tt.reason != "" {
					n.Status.Conditions = []corev1.NodeCondition{{Type: api.AutonomyCondition, Status: corev1.ConditionTrue, Reason: tt.reason}}
				}
				w := start(t, n)
				w.after(time.Minute)
				if got := w.readsPods(); got != tt.reads {
					t.Errorf("pods are read: %v", got)
				}
				w.wantCondition(tt.want)
			})
		})
	}
}

func TestPodsOfANodeThatAsksForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, node(api.AutonomyAnnotation, "1h"), pod("p"), ofDaemonSet(pod("daemon")))
		w.after(time.Second)
		w.want("p", hour)
		w.want("daemon", "300 300")
		if _, err := w.client.CoreV1().Pods("ns").Create(t.Context(), pod("late"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.after(time.Second)
		w.want("late", hour)
		for _, name := range []string{"daemon", "late"} {
			if err := w.client.CoreV1().Pods("ns").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		w.change(func(n *corev1.Node) { n.Annotations, n.Labels = nil, map[string]string{"edge": ""} })
		w.after(time.Second)
		w.want("p", day)
		w.change(func(n *corev1.Node) { n.Labels = nil })
		w.after(time.Second)
		w.want("p", "300 300")
		w.wantCondition("False AutonomyRemoved")
	})
}

// What the apiserver says counts before the flag, from the first patch on.
func TestTheApiserverIsAskedForTheDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seconds, asked atomic.Int64
		log := &bytes.Buffer{}
		w := &world{t: t, client: fake.NewClientset(node(api.AutonomyAnnotation, "1h"), withSeconds("p", 30), pod("q")), log: log}
		w.barePod = func(context.Context) (*corev1.Pod, error) {
			if asked.Add(1); seconds.Load() == 0 {
				return nil, errors.New("no right")
			}
			return withSeconds("", seconds.Load()), nil
		}
		w.run()
		w.after(30 * time.Second)
		w.want("p", "30 30")
		w.want("q", hour)
		w.after(10 * time.Minute)
		if asked.Load() != 11 || strings.Count(log.String(), "no right") != 1 {
			t.Errorf("asked %d times, log:\n%s", asked.Load(), log)
		}
		seconds.Store(30)
		w.after(time.Minute)
		w.want("p", hour)
		if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "notReady=30 unreachable=30 notReadyBefore=300") {
			t.Errorf("log:\n%s", log)
		}
		asked.Store(0)
		seconds.Store(0)
		w.after(time.Hour)
		w.change(func(n *corev1.Node) { n.Annotations = nil })
		w.after(time.Second)
		w.want("p", "30 30")
		w.want("q", "30 30")
		if asked.Load() != 1 {
			t.Errorf("asked %d times in an hour", asked.Load())
		}
	})
}

// A node with pods of which none stays does not say that they do.
func TestANodeWithoutAPodThatStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, node(api.AutonomyAnnotation, "1h"), withSeconds("p", 30), ofDaemonSet(pod("daemon")))
		w.after(time.Second)
		w.wantCondition("False AutonomyWithoutEffect")
		w.wantMetrics("1 pending")
		if _, err := w.client.CoreV1().Pods("ns").Create(t.Context(), pod("q"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.after(time.Minute)
		w.wantCondition("True AutonomyApplied")
		for _, step := range []struct{ gone, want string }{{"q", "False AutonomyWithoutEffect"}, {"p", "True AutonomyApplied"}} {
			if err := w.client.CoreV1().Pods("ns").Delete(t.Context(), step.gone, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			w.after(time.Minute)
			w.wantCondition(step.want)
		}
	})
}

// OpenYurt leaves its records on pods, with what the seconds are again, and a node may forge them.
func TestRecordsOnANodeThatNeverWasAutonomous(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := node()
		other.Name = "other"
		p := pod("q")
		p.Spec.NodeName = "other"
		for i, key := range []string{api.OriginalNotReadyAnnotation, api.OriginalUnreachableAnnotation} {
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, "infinite")
			p.Spec.Tolerations[i].TolerationSeconds = nil
		}
		w := start(t, node(api.AutonomyAnnotation, "1h"), pod("p"), p)
		if _, err := w.client.CoreV1().Nodes().Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.after(time.Second)
		w.want("p", hour)
		w.want("q", "forever forever held")
		if _, err := w.client.CoreV1().Pods("ns").UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.after(time.Minute)
		w.want("q", "forever forever held")
	})
}

// A controller that ends between the two steps leaves them to the next one.
func TestStepsWhileTheNodeIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := node(api.AutonomyAnnotation, "1h")
		n.Spec.Taints = unreachable
		w := start(t, n, pod("p"))
		w.after(time.Second)
		w.want("p", "forever forever held")
		w.wantCondition("")
		w.after(2 * time.Second)
		w.want("p", hour)
		w.wantCondition("True AutonomyApplied")
	})
	synctest.Test(t, func(t *testing.T) {
		n := node(api.AutonomyAnnotation, "1h")
		n.Spec.Taints = unreachable
		client := fake.NewClientset(n, pod("p"))
		w := &world{t: t, client: client}
		stop := w.run()
		w.after(time.Second)
		stop()
		w.want("p", "forever forever held")
		w.run()
		w.after(time.Second)
		w.want("p", "forever forever held")
		w.after(2 * time.Second)
		w.want("p", hour)
	})
}

func TestReleasedNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, node(api.AutonomyAnnotation, "1h"), pod("p"))
		w.after(time.Second)
		w.wantMetrics("1 applied")
		w.change(func(n *corev1.Node) {
			n.Spec.Taints = slices.Clone(unreachable)
			n.Spec.Taints[0].TimeAdded = new(metav1.Now())
		})
		w.after(time.Hour)
		w.want("p", hour)
		w.wantMetrics("away for 1h0m0s, 1 applied")
		w.change(func(n *corev1.Node) { n.Annotations[api.ReleasedAnnotation] = "2026-01-01T00:00:00Z" })
		w.after(3 * time.Second)
		w.want("p", "0 0 held")
		w.wantCondition("False Released")
		w.wantMetrics("1 released")
		if _, ok := w.node().Annotations[api.ReleasedAnnotation]; !ok {
			t.Error("the annotation has gone before the node is back")
		}
		w.after(15 * time.Second) // nothing evicts it here
		w.want("p", "forever forever held")
		w.after(2 * time.Second)
		w.want("p", "0 0 held")
		w.change(func(n *corev1.Node) { n.Spec.Taints = nil })
		w.after(time.Second)
		w.want("p", hour)
		w.wantCondition("True AutonomyApplied")
		if text, ok := w.node().Annotations[api.ReleasedAnnotation]; ok {
			t.Errorf("the annotation is still there: %s", text)
		}
	})
}

// What is refused is tried again, and seen on the Node meanwhile. A conflict is neither: the watch brings what was not seen.
func TestPatchesThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := node(api.AutonomyAnnotation, "1h")
		client := fake.NewClientset(n, pod("p"), pod("q"))
		var answer atomic.Pointer[error]
		respond := func(err error) { answer.Store(&err) }
		respond(errors.New("no"))
		client.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			err := *answer.Load()
			return a.(clienttesting.PatchAction).GetName() == "p" && err != nil, nil, err
		})
		w := &world{t: t, client: client}
		w.run()
		w.after(time.Second)
		w.want("p", "300 300")
		w.want("q", hour)
		w.wantCondition("False AutonomyIncomplete")
		w.wantMetrics("1 pending")
		w.after(5 * time.Minute) // it is tried once a minute by now, which holds up no other pod
		w.change(func(n *corev1.Node) { n.Spec.Taints, n.Annotations[api.AutonomyAnnotation] = unreachable, "24h" })
		w.after(3 * time.Second)
		w.want("q", day)
		w.change(func(n *corev1.Node) { n.Spec.Taints, n.Annotations[api.AutonomyAnnotation] = nil, "1h" })
		respond(apierrors.NewConflict(corev1.Resource("pods"), "p", errors.New("newer")))
		w.after(time.Minute)
		w.wantCondition("False AutonomyIncomplete")
		respond(nil)
		w.after(time.Minute)
		w.want("p", hour)
		w.wantCondition("True AutonomyApplied")
	})
}
