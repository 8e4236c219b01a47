package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

// edge is one node, from which the cloud is taken away, with a namespace for it.
type edge struct {
	t    *testing.T
	node *cluster.Node
	ns   string
}

// newEdge gives the node its link back when the test ends.
func newEdge(t *testing.T, ns, node string) *edge {
	t.Helper()
	e := &edge{t: t, node: env.Node(node), ns: namespace(t, ns)}
	t.Cleanup(func() { giveBack(t, e.node) })
	return e
}

// giveBack gives a node its link back, and waits until the hub has noticed: the next test may
// take it for granted.
func giveBack(t *testing.T, node *cluster.Node) {
	t.Helper()
	if err := node.Link().Up(); err != nil {
		t.Error(err)
	}
	awaitUpstream(t, node, 1)
}

// cuts are the ways in which the cloud goes away.
var cuts = map[string]func(*cluster.Node) error{
	"refused": func(n *cluster.Node) error {
		err := n.Link().Refuse()
		n.Link().Reset()
		return err
	},
	"black hole": func(n *cluster.Node) error { return n.Link().BlackHole() },
}

// cut takes the cloud away, and returns when the hub has noticed.
func (e *edge) cut(how string) {
	e.t.Helper()
	if err := cuts[how](e.node); err != nil {
		e.t.Fatal(err)
	}
	began := time.Now()
	awaitUpstream(e.t, e.node, 0)
	e.t.Logf("%s: the loss was noticed after %v", how, time.Since(began).Round(time.Millisecond))
}

// awaitUpstream waits until the hub reports whether it reaches the apiserver, 1 or 0.
func awaitUpstream(t *testing.T, node *cluster.Node, up float64) {
	t.Helper()
	// A test's own context has ended when its cleanup runs.
	ctx := context.WithoutCancel(t.Context())
	eventuallyWithin(ctx, t, fmt.Sprintf("edgehub_upstream_up of %s is %v", node.Name(), up), func(ctx context.Context) string {
		got, err := metric(ctx, node, "edgehub_upstream_up")
		if err == nil && got != up {
			err = fmt.Errorf("it is %v", got)
		}
		return words(err)
	})
}

// metric is the value of one of the hub's metrics, which has one line.
func metric(ctx context.Context, node *cluster.Node, name string) (float64, error) {
	code, text := rawclient.Ask(ctx, http.MethodGet, node.APIURL()+"/metrics")
	if code != http.StatusOK {
		return 0, fmt.Errorf("GET /metrics: %d %.300s", code, text)
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, name+"{") || strings.HasPrefix(line, name+" ") {
			return strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]), 64)
		}
	}
	return 0, fmt.Errorf("the hub has no metric %s", name)
}

// create makes a pod of the test app on the node; nothing waits for it.
func (e *edge) create(name string, change func(*corev1.PodSpec)) {
	e.t.Helper()
	spec := podTemplate().Spec
	spec.NodeName = e.node.Name()
	if change != nil {
		change(&spec)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	if _, err := env.client.CoreV1().Pods(e.ns).Create(e.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
}

// createDaemon makes a DaemonSet that runs on this node alone, and that Kubernetes
// itself upgrades.
func (e *edge) createDaemon() {
	e.t.Helper()
	ds := otaDaemonSet("daemon")
	ds.Annotations = nil
	ds.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType}
	ds.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: e.node.Name()}
	if _, err := env.client.AppsV1().DaemonSets(e.ns).Create(e.t.Context(), ds, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
}

// started is one start of a pod's container.
type started struct {
	pod      *corev1.Pod // as the cloud knew it last
	ip       string
	instance string // another after each start
}

// running waits until the cloud calls the pod Ready.
func (e *edge) running(name string) started {
	e.t.Helper()
	s := started{}
	eventually(e.t, "pod "+name+" is Ready", func(ctx context.Context) string {
		var err error
		s.pod, err = env.client.CoreV1().Pods(e.ns).Get(ctx, name, metav1.GetOptions{})
		if err == nil && !isReady(s.pod) {
			err = fmt.Errorf("it is %s: %+v", s.pod.Status.Phase, s.pod.Status.ContainerStatuses)
		}
		if err == nil {
			s.ip = s.pod.Status.PodIP
			s.instance, err = answerOf(ctx, s.ip, "instance")
		}
		return words(err)
	})
	return s
}

// answerOf returns what an app answers; an error where it does not answer.
func answerOf(ctx context.Context, ip, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	code, body := rawclient.Ask(ctx, http.MethodGet, "http://"+ip+":8080/"+path)
	if code != http.StatusOK {
		return "", fmt.Errorf("%s at %s: %d %s", path, ip, code, body)
	}
	return body, nil
}

// kill kills the pod's container, and waits until kubelet has started another.
func (e *edge) kill(s *started) {
	e.t.Helper()
	if err := e.node.KillContainer(s.pod.Status.ContainerStatuses[0].ContainerID); err != nil {
		e.t.Fatal(err)
	}
	began := time.Now()
	eventually(e.t, "the container of "+s.pod.Name+" is started again", func(ctx context.Context) string {
		now, err := answerOf(ctx, s.ip, "instance")
		if err != nil || now == s.instance {
			return fmt.Sprintf("instance %q, %v", now, err)
		}
		s.instance = now
		return ""
	})
	e.t.Logf("the killed container of %s was started again after %v", s.pod.Name, time.Since(began).Round(time.Millisecond))
}

// find looks for a pod at all addresses that pods of the node have: nobody in the
// cloud knows where it is after a reboot.
func (e *edge) find(name string) started {
	e.t.Helper()
	s := started{}
	eventually(e.t, "pod "+name+" answers", func(ctx context.Context) string {
		found, err := e.look(ctx, name)
		if found != nil {
			s = *found
		}
		return words(err)
	})
	return s
}

func (e *edge) look(ctx context.Context, name string) (*started, error) {
	ips, err := e.node.PodIPs()
	if err != nil {
		return nil, err
	}
	slices.Reverse(ips) // the newest last, mostly
	for _, ip := range ips {
		quick, cancel := context.WithTimeout(ctx, time.Second) // nobody has most of them any more
		host, _ := answerOf(quick, ip, "hostname")
		cancel()
		if host != name {
			continue
		}
		s := &started{ip: ip}
		s.instance, err = answerOf(ctx, ip, "instance")
		return s, err
	}
	return nil, fmt.Errorf("it is at none of %v", ips)
}

// steady watches containers until the function that it returns is called, which
// fails the test if one of them did not answer or was started again.
func (e *edge) steady(pods map[string]started) (stop func()) {
	ctx, cancel := context.WithCancel(e.t.Context())
	seen := make(chan []string, 1) // the result
	go func() {
		var wrong []string
		for ctx.Err() == nil {
			for name, s := range pods {
				now, err := answerOf(ctx, s.ip, "instance")
				if ctx.Err() == nil && (err != nil || now != s.instance) {
					wrong = append(wrong, fmt.Sprintf("%s at %s: %s %q, it was %q; %v",
						name, s.ip, time.Now().Format(time.TimeOnly), now, s.instance, err))
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(500 * time.Millisecond):
			}
		}
		seen <- wrong
	}()
	return func() {
		e.t.Helper()
		cancel()
		if wrong := <-seen; len(wrong) > 0 {
			e.t.Errorf("%d times a container that nobody touched did not answer or was another, first: %s", len(wrong), wrong[0])
		}
	}
}
