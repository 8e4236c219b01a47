package nodes

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/controller/autonomy"
	"github.com/edgehub-io/edgehub/ota/api"
)

var start = time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC)

// node has been Ready for an hour.
func node(name string, annotations map[string]string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", ResourceVersion: "7", Annotations: annotations}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(start.Add(-time.Hour))}}
	return n
}

// away makes n one that lost its connection at start.
func away(n *corev1.Node) *corev1.Node {
	at := metav1.NewTime(start)
	n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = corev1.ConditionUnknown, at
	for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute} {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: effect, TimeAdded: &at})
	}
	return n
}

// applied sets the condition as the controller does that has, or has not, changed all pods.
func applied(n *corev1.Node, s autonomy.Setting, failed error) *corev1.Node {
	n.Status.Conditions = append(n.Status.Conditions, *autonomy.ConditionFor(n, s, nil, failed))
	return n
}

// fleet has defaults that no pod here has.
var fleet = autonomy.Fleet{Defaults: autonomy.Same(300)}

func withoutEffect(n *corev1.Node) *corev1.Node {
	n.Status.Conditions = append(n.Status.Conditions, *fleet.WithoutEffect())
	return n
}

// pod is a held one with these seconds, less than 0: for ever.
func pod(name, kind string, seconds int64) *corev1.Pod {
	yes := true
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name,
		Annotations:     map[string]string{api.OriginalUnreachableAnnotation: "300"},
		OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: "owner", Controller: &yes}},
	}}
	p.Spec.NodeName = "edge"
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
		if seconds >= 0 {
			t.TolerationSeconds = &seconds
		}
		p.Spec.Tolerations = append(p.Spec.Tolerations, t)
	}
	return p
}

func TestANodeInTheReport(t *testing.T) {
	forged := applied(node("a", nil), autonomy.For(0), nil)
	forged.Status.Conditions[1].Message = "stay while it is away, " + strings.Repeat("long ", 1000)
	day := map[string]string{api.AutonomyAnnotation: "24h"}
	gone := pod("gone", "ReplicaSet", 86400)
	gone.DeletionTimestamp = &metav1.Time{Time: start}
	own := pod("own", "ReplicaSet", 60)
	own.Annotations = nil
	tests := map[string]struct {
		node *corev1.Node
		pods []*corev1.Pod
		want string // columns, and the problem
	}{
		"not autonomous":            {node("a", nil), nil, "- - 0 -"},
		"not autonomous, and away":  {away(node("a", nil)), []*corev1.Pod{own}, "- 2026-01-01T10:00 0 -"},
		"for a day":                 {applied(node("a", day), autonomy.For(24*time.Hour), nil), []*corev1.Pod{pod("x", "ReplicaSet", 86400)}, "24h - 1 -"},
		"for an odd time":           {applied(node("a", map[string]string{api.AutonomyAnnotation: "90m30s"}), autonomy.For(90*time.Minute), nil), nil, "1h30m30s - 0 -"},
		"for ten minutes":           {applied(node("a", map[string]string{api.AutonomyAnnotation: "10m"}), autonomy.For(10*time.Minute), nil), nil, "10m - 0 -"},
		"for ever":                  {applied(node("a", map[string]string{api.OldAutonomyAnnotation: "true"}), autonomy.For(0), nil), nil, "forever - 0 -"},
		"selected, for a day":       {applied(node("a", nil), autonomy.For(24*time.Hour), nil), nil, "24h - 0 -"},
		"selected, for ever":        {applied(node("a", nil), autonomy.For(0), nil), nil, "forever - 0 -"},
		"away for up to a day":      {away(applied(node("a", day), autonomy.For(24*time.Hour), nil)), []*corev1.Pod{pod("x", "ReplicaSet", 86400), pod("y", "StatefulSet", 86400), gone, own}, "24h 2026-01-01T10:00 2,1-less 2026-01-02T10:00:00Z"},
		"away for ever":             {away(applied(node("a", nil), autonomy.For(0), nil)), []*corev1.Pod{pod("x", "ReplicaSet", -1)}, "forever 2026-01-01T10:00 1 forever"},
		"one that does not stay":    {away(applied(node("a", nil), autonomy.For(0), nil)), []*corev1.Pod{pod("x", "ReplicaSet", -1), pod("y", "ReplicaSet", 60)}, "forever 2026-01-01T10:00 2,1-less 2026-01-01T10:01:00Z"},
		"selected, and own seconds": {applied(node("a", nil), autonomy.For(time.Hour), nil), []*corev1.Pod{own, pod("x", "ReplicaSet", 3600), pod("d", "DaemonSet", 60)}, "1h - 1,1-less -"},
		"without effect":            {withoutEffect(node("a", day)), []*corev1.Pod{own}, "24h - 0,1-less - " + fleet.WithoutEffect().Message},
		"selected, without effect":  {withoutEffect(node("a", nil)), []*corev1.Pod{own}, "- - 0 - " + fleet.WithoutEffect().Message},
		"not yet carried out":       {node("a", day), nil, "24h - 0 - the controller has not yet carried out its annotation"},
		"not carried out":           {applied(node("a", day), autonomy.For(24*time.Hour), errors.New("pod x: no")), nil, "24h - 0 - pod x: no; it is tried again"},
		"not put back":              {applied(node("a", nil), autonomy.Setting{}, errors.New("pod x: no")), nil, "- - 0 - pod x: no; it is tried again"},
		"no longer":                 {applied(applied(node("a", nil), autonomy.For(0), nil), autonomy.Setting{}, nil), nil, "forever - 0 -"},
		"no duration":               {node("a", map[string]string{api.AutonomyAnnotation: "7d"}), nil, "invalid - 0 - annotation node.openyurt.io/autonomy-duration is \"7d\": want a duration like 24h or 1h30m, or 0 for any outage"},
		"of a condition it forged":  {forged, nil, "invalid - 0 -"},
		"released":                  {away(node("a", map[string]string{api.ReleasedAnnotation: "x"})), []*corev1.Pod{pod("x", "ReplicaSet", 0)}, "released 2026-01-01T10:00 1 2026-01-01T10:00:00Z"},
		"released, and back by now": {applied(node("a", map[string]string{api.ReleasedAnnotation: "x", api.AutonomyAnnotation: "0"}), autonomy.For(0), nil), nil, "forever - 0 -"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := judge(tt.node)
			for _, p := range tt.pods {
				n.count(tt.node, p)
			}
			since := "-"
			if n.OfflineSince != nil {
				since = n.OfflineSince.UTC().Format("2006-01-02T15:04")
			}
			filled := func(s string) string {
				if s == "" {
					return "-"
				}
				return s
			}
			heldPods := fmt.Sprint(n.HeldPods)
			if n.UnheldPods > 0 {
				heldPods += fmt.Sprintf(",%d-less", n.UnheldPods)
			}
			got := strings.TrimSpace(fmt.Sprintf("%s %s %s %s %s", filled(n.Autonomy), since, heldPods, filled(n.HeldUntil), n.Problem))
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestTheTableFitsATerminal(t *testing.T) {
	since := metav1.NewTime(start)
	r := &Report{
		Nodes: []Node{
			{Name: "factory-edge-07", Autonomy: "released", OfflineSince: &since, HeldPods: 110, until: start.Add(90 * time.Minute)},
			{Name: "edge2", Ready: true, Problem: "the annotation\nis odd"},
			{Name: "edge3", Ready: true, Autonomy: "24h", HeldPods: 4, UnheldPods: 2},
		},
		Warnings: []string{"the controller seems not to run"},
	}
	want := "" +
		"NODE              AUTONOMY   OFFLINE SINCE (UTC)   HELD   UNTIL (UTC)\n" +
		"factory-edge-07   released   2026-01-01 10:00      110    2026-01-01 11:30\n" +
		"edge2             -          -                     0      -\n" +
		"edge3             24h        -                     4      -\n" +
		"warning: node edge2: the annotation is odd\n" +
		"warning: node edge3: left to Kubernetes, with seconds of their own: 2 pods\n" +
		"warning: the controller seems not to run\n"
	if got := r.Text(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	for line := range strings.Lines(r.Text()) {
		if len(line) > 80+1 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	for range 7 {
		r.Nodes = append(r.Nodes, r.Nodes[1])
	}
	if got := r.Text(); strings.Count(got, "is odd") != maxProblems-1 || !strings.Contains(got, "warning: 4 more nodes have problems, see -o json\n") {
		t.Errorf("got\n%s", got)
	}
}

// Scripts depend on these names.
func TestJSON(t *testing.T) {
	n := away(applied(node("a", nil), autonomy.For(time.Hour), nil))
	r := &Report{Nodes: []Node{judge(n), {Name: "b"}}}
	r.Nodes[0].hold(n, pod("x", "ReplicaSet", 3600))
	got, err := json.Marshal(r)
	want := `{"nodes":[{"name":"a","ready":false,"autonomy":"1h","offlineSince":"2026-01-01T10:00:00Z","heldPods":1,"heldUntil":"2026-01-01T11:00:00Z"},` +
		`{"name":"b","ready":false,"heldPods":0}]}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}
}
