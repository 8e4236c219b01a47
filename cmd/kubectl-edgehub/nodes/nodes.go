// Package nodes shows which nodes keep their pods while they are away, and releases one that does not come back. It reads
// Nodes and pods as they are: what the controller has done with them, by package controller/autonomy.
package nodes

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/controller/autonomy"
	"github.com/edgehub-io/edgehub/ota/api"
)

// Values of Node.Autonomy and Node.HeldUntil besides durations and times.
const (
	forever  = "forever"
	released = "released"
	invalid  = "invalid"
)

// Report has all nodes, by name. As JSON it is an interface to scripts: fields are added, and never change their meaning.
type Report struct {
	Nodes    []Node   `json:"nodes"`
	Warnings []string `json:"warnings,omitempty"`
}

// Node is one node.
type Node struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
	// Autonomy is for how long its pods stay while it is away: a Go duration, or forever; released while they are evicted
	// in spite of that, invalid if the annotation or the condition cannot be read, and "" if that is up to Kubernetes.
	Autonomy string `json:"autonomy,omitempty"`
	// Problem is why Autonomy is not what its pods have.
	Problem string `json:"problem,omitempty"`
	// OfflineSince is when the taint was added that evicts pods, or the node was no longer Ready if it has none; nil if
	// it is there.
	OfflineSince *metav1.Time `json:"offlineSince,omitempty"`
	// HeldPods of its pods have the tolerations of its autonomy.
	HeldPods int `json:"heldPods"`
	// HeldUntil is when Kubernetes evicts the first of them, at the earliest: a time in RFC 3339, or forever. It is "" while
	// the node is there, and if none is held.
	HeldUntil string `json:"heldUntil,omitempty"`

	// UnheldPods tolerate less than Autonomy, with tolerations of their own: they are left to Kubernetes. It is 0 where
	// Autonomy is none, or not known.
	UnheldPods int `json:"unheldPods,omitempty"`

	until   time.Time        // of HeldUntil
	setting autonomy.Setting // of Autonomy; not On unless that is a duration or forever
}

// Look returns a report of all nodes, or of the one with that name if it is not "".
func Look(ctx context.Context, client kubernetes.Interface, name string) (*Report, error) {
	all, err := list(ctx, client, name)
	if err != nil {
		return nil, err
	}
	r := &Report{Nodes: make([]Node, len(all))}
	at, byName := map[string]int{}, map[string]*corev1.Node{}
	for i := range all {
		r.Nodes[i] = judge(&all[i])
		at[all[i].Name], byName[all[i].Name] = i, &all[i]
	}
	err = eachPod(ctx, client, name, func(pod *corev1.Pod) {
		if node := byName[pod.Spec.NodeName]; node != nil {
			r.Nodes[at[node.Name]].count(node, pod)
		}
	})
	return r, err
}

func list(ctx context.Context, client kubernetes.Interface, name string) ([]corev1.Node, error) {
	if name != "" {
		node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return []corev1.Node{*node}, nil
	}
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	return list.Items, nil
}

// eachPod calls f for each pod of all nodes, or of the one with that name if it is not "". It keeps a page of them.
func eachPod(ctx context.Context, client kubernetes.Interface, node string, f func(*corev1.Pod)) error {
	options := metav1.ListOptions{}
	if node != "" {
		options.FieldSelector = "spec.nodeName=" + node
	}
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, o)
	})
	return pages.EachListItem(ctx, options, func(o runtime.Object) error {
		if pod, ok := o.(*corev1.Pod); ok {
			f(pod)
		}
		return nil
	})
}

// held reports whether pod would be evicted earlier without the autonomy of its node.
func held(pod *corev1.Pod) bool { return autonomy.Held(pod) && !autonomy.Exempt(pod) }

func ready(node *corev1.Node) (is bool, transition metav1.Time) {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue, c.LastTransitionTime
		}
	}
	return false, node.CreationTimestamp
}

// judge returns what is known without the node's pods.
func judge(node *corev1.Node) Node {
	n := Node{Name: node.Name}
	var since metav1.Time
	if n.Ready, since = ready(node); !n.Ready || autonomy.Away(node) {
		if tainted, ok := autonomy.AwaySince(node); ok {
			since = metav1.NewTime(tainted)
		}
		n.OfflineSince = &since
	}
	setting, _, err := autonomy.Parse(node.Annotations)
	condition := cmp.Or(autonomy.ConditionOf(node), &corev1.NodeCondition{})
	_, isReleased := node.Annotations[api.ReleasedAnnotation]
	switch applied := condition.Status == corev1.ConditionTrue; {
	case err != nil:
		n.Autonomy, n.Problem = invalid, err.Error()
	case isReleased && autonomy.Away(node):
		n.Autonomy = released
	case setting.On:
		n.Autonomy, n.setting = short(setting.String())
		if !applied {
			n.Problem = cmp.Or(condition.Message, "the controller has not yet carried out its annotation")
		}
	case applied: // selected by the controller's configuration
		_, words, _ := strings.Cut(condition.Message, "is away, ")
		n.Autonomy, n.setting = short(words)
	case condition.Reason == autonomy.ReasonIncomplete, condition.Reason == autonomy.ReasonNoEffect:
		n.Problem = condition.Message
	}
	return n
}

// short makes one word of a Setting's text, which a node may have written into its own condition, and reads it.
func short(setting string) (string, autonomy.Setting) {
	if setting == autonomy.For(0).String() {
		return forever, autonomy.For(0)
	}
	d, err := time.ParseDuration(strings.TrimPrefix(setting, "for up to "))
	if err != nil || d <= 0 {
		return invalid, autonomy.Setting{}
	}
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} { // 24h0m0s is 24h
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-len("0s")]
		}
	}
	return text, autonomy.For(d)
}

// count counts a pod of node.
func (n *Node) count(node *corev1.Node, pod *corev1.Pod) {
	if held(pod) {
		n.hold(node, pod)
	}
	if n.setting.On && !autonomy.Exempt(pod) && !autonomy.Stays(pod, n.setting) {
		n.UnheldPods++
	}
}

// hold counts a held pod of node.
func (n *Node) hold(node *corev1.Node, pod *corev1.Pod) {
	n.HeldPods++
	if n.OfflineSince == nil {
		return
	}
	at := eviction(node, pod)
	switch {
	case at.IsZero() && n.HeldUntil == "":
		n.HeldUntil = forever
	case !at.IsZero() && (n.until.IsZero() || at.Before(n.until)):
		n.until, n.HeldUntil = at, at.UTC().Format(time.RFC3339)
	}
}

// eviction returns when taint eviction deletes pod at the earliest, zero for never: of the tolerations that match, the shortest
// one counts.
func eviction(node *corev1.Node, pod *corev1.Pod) (at time.Time) {
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if taint.Effect != corev1.TaintEffectNoExecute || taint.TimeAdded == nil {
			continue
		}
		for j := range pod.Spec.Tolerations {
			t := &pod.Spec.Tolerations[j]
			if t.TolerationSeconds == nil || !t.ToleratesTaint(klog.Background(), taint, true) {
				continue
			}
			if end := taint.TimeAdded.Add(time.Duration(*t.TolerationSeconds) * time.Second); at.IsZero() || end.Before(at) {
				at = end
			}
		}
	}
	return at
}

// Autonomous reports whether pods of any node stay, or should.
func (r *Report) Autonomous() bool {
	return slices.ContainsFunc(r.Nodes, func(n Node) bool { return n.Autonomy != "" })
}

// CarriedOut reports whether no node has a problem.
func (r *Report) CarriedOut() bool {
	return !slices.ContainsFunc(r.Nodes, func(n Node) bool { return n.Problem != "" })
}

// minutes is how the table shows times, in UTC.
const minutes = "2006-01-02 15:04"

// maxProblems is how many problems the text has; JSON has all of them.
const maxProblems = 5

// Text is the report for people: a table, and what is wrong below it.
func (r *Report) Text() string {
	var rows [][]string
	var problems []string
	for i := range r.Nodes {
		n := &r.Nodes[i]
		since, until := "", n.HeldUntil
		if n.OfflineSince != nil {
			since = n.OfflineSince.UTC().Format(minutes)
		}
		if !n.until.IsZero() {
			until = n.until.UTC().Format(minutes)
		}
		rows = append(rows, []string{n.Name, n.Autonomy, since, fmt.Sprint(n.HeldPods), until})
		switch {
		case n.Problem != "":
			problems = append(problems, fmt.Sprintf("node %s: %.400s", n.Name, n.Problem)) // the node may have written it
		case n.UnheldPods > 0:
			problems = append(problems, fmt.Sprintf("node %s: left to Kubernetes, with seconds of their own: %s", n.Name, cli.Plural(n.UnheldPods, "pod")))
		}
	}
	if more := len(problems) - maxProblems; more > 0 {
		problems = append(problems[:maxProblems], fmt.Sprintf("%d more nodes have problems, see -o json", more))
	}
	out := cli.Table([]string{"NODE", "AUTONOMY", "OFFLINE SINCE (UTC)", "HELD", "UNTIL (UTC)"}, rows, 0)
	for _, w := range append(problems, r.Warnings...) {
		out += cli.OneLine("warning: "+w) + "\n"
	}
	return out
}
