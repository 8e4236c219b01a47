package kubeadm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// everyProgram is how the names of the edge node's pods begin.
var everyProgram = []string{"coredns", "informer", "kube-flannel-ds", "kube-proxy", "web"}

func since(began time.Time) string {
	return time.Since(began).Round(100 * time.Millisecond).String()
}

// eventually waits until check returns nil. It says what came true and how long that took, if
// there is somebody to say it to.
func (c *Cluster) eventually(ctx context.Context, say Say, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	for {
		err := check(ctx)
		if err == nil {
			if say != nil {
				say("%s     # %s", what, since(began))
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %s: %w", since(began), what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// get is what curl on the edge node gets.
func (c *Cluster) get(ctx context.Context, url string) (string, error) {
	return c.machines[edge].Run(ctx, "curl", "--silent", "--show-error", "--fail-with-body", "--max-time", "5", url)
}

func (c *Cluster) nodeReady(ctx context.Context, name string) error {
	node, err := c.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("node %s is not Ready", name)
}

// pods are those of the edge node, in the cloud's eyes.
func (c *Cluster) pods(ctx context.Context) ([]corev1.Pod, error) {
	list, err := c.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + edge})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// podsOffline are the same in the hub's eyes.
func (c *Cluster) podsOffline(ctx context.Context) ([]corev1.Pod, error) {
	text, err := c.get(ctx, "http://127.0.0.1:10261/api/v1/pods?fieldSelector=spec.nodeName%3D"+edge)
	if err != nil {
		return nil, err
	}
	var list corev1.PodList
	err = json.Unmarshal([]byte(text), &list)
	return list.Items, err
}

func (c *Cluster) podsReady(ctx context.Context, names ...string) error {
	pods, err := c.pods(ctx)
	if err != nil {
		return err
	}
	return allReady(pods, time.Time{}, names)
}

// podsReadyOffline demands that the containers were started since the boot.
func (c *Cluster) podsReadyOffline(ctx context.Context, names ...string) error {
	pods, err := c.podsOffline(ctx)
	if err != nil {
		return err
	}
	return allReady(pods, c.booted, names)
}

// allReady returns an error unless there is one pod for each name, and all are Ready with
// containers that were started at a time or later.
func allReady(pods []corev1.Pod, started time.Time, names []string) error {
	for _, name := range names {
		pod, err := podOf(pods, name)
		if err != nil {
			return err
		}
		if !ready(pod, started) {
			return fmt.Errorf("pod %s is not Ready", pod.Name)
		}
	}
	return nil
}

// podOf returns the pod whose name begins with a word and a dash.
func podOf(pods []corev1.Pod, name string) (*corev1.Pod, error) {
	var found []*corev1.Pod
	for i := range pods {
		if strings.HasPrefix(pods[i].Name, name+"-") {
			found = append(found, &pods[i])
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("there are %d pods %s, and not 1", len(found), name)
	}
	return found[0], nil
}

func ready(pod *corev1.Pod, started time.Time) bool {
	if pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning {
		return false
	}
	for _, s := range pod.Status.ContainerStatuses {
		if s.State.Running == nil || s.State.Running.StartedAt.Time.Before(started) {
			return false
		}
	}
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// containers are the running ones' ids, one pod a line.
func (c *Cluster) containers(ctx context.Context) (string, error) { return containerIDs(c.pods(ctx)) }

func (c *Cluster) containersOffline(ctx context.Context) (string, error) {
	return containerIDs(c.podsOffline(ctx))
}

func containerIDs(pods []corev1.Pod, err error) (string, error) {
	var lines []string
	for i := range pods {
		for _, s := range pods[i].Status.ContainerStatuses {
			lines = append(lines, pods[i].Name+" "+s.ContainerID+"\n")
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, ""), err
}

// deletePods deletes the edge node's pods, whose owners make others.
func (c *Cluster) deletePods(ctx context.Context, say Say) error {
	pods, err := c.pods(ctx)
	if err != nil {
		return err
	}
	for i := range pods {
		if err := c.client.CoreV1().Pods(pods[i].Namespace).Delete(ctx, pods[i].Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return c.eventually(ctx, say, "edge's pods were deleted, and are gone", func(ctx context.Context) error {
		now, err := c.pods(ctx)
		for i := range now {
			if slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.UID == now[i].UID }) {
				err = errors.Join(err, errors.New(now[i].Name+" is there"))
			}
		}
		return err
	})
}

// hubIs waits until the hub's status line in systemd begins with a word.
func (c *Cluster) hubIs(ctx context.Context, say Say, word string) error {
	return c.eventually(ctx, say, "the hub is "+word, func(ctx context.Context) error {
		out, err := c.machines[edge].Run(ctx, "systemctl", "show", "edgehub.service", "--property=StatusText", "--value")
		if err == nil && !strings.HasPrefix(out, word) {
			err = errors.New("the hub is " + strings.TrimSpace(out))
		}
		return err
	})
}

// podIP is the address of one of the edge node's pods.
func (c *Cluster) podIP(ctx context.Context, name string) (string, error) {
	list := c.pods
	if !c.booted.IsZero() {
		list = c.podsOffline
	}
	pods, err := list(ctx)
	if err != nil {
		return "", err
	}
	pod, err := podOf(pods, name)
	if err != nil {
		return "", err
	}
	return pod.Status.PodIP, nil
}

// serviceAnswers has a pod of the edge node ask the Service of its web server by name: that
// takes CoreDNS, kube-proxy and the pod network.
func (c *Cluster) serviceAnswers(ctx context.Context, say Say) error {
	return c.eventually(ctx, say, "a pod asks http://web.default.svc.cluster.local, and its own node's pod answers", func(ctx context.Context) error {
		web, err := c.podIP(ctx, "web")
		if err != nil {
			return err
		}
		return c.askService(ctx, web)
	})
}

// askService has the web server at an address ask.
func (c *Cluster) askService(ctx context.Context, web string) error {
	answer, err := c.get(ctx, "http://"+net.JoinHostPort(web, "8080")+"/ask?url=http://web.default.svc.cluster.local/hostname")
	if err == nil && !strings.HasPrefix(answer, "web-") {
		err = fmt.Errorf("it answers %q", answer)
	}
	return err
}

// podsAnswer asks CoreDNS and the web server themselves.
func (c *Cluster) podsAnswer(ctx context.Context, say Say) error {
	if err := c.eventually(ctx, say, "CoreDNS knows web.default.svc.cluster.local", func(ctx context.Context) error {
		ip, err := c.podIP(ctx, "coredns")
		if err != nil {
			return err
		}
		resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return c.machines[edge].Dial(ctx, network, net.JoinHostPort(ip, "53"))
		}}
		_, err = resolver.LookupHost(ctx, "web.default.svc.cluster.local.")
		return err
	}); err != nil {
		return err
	}
	return c.eventually(ctx, say, "the web server answers", func(ctx context.Context) error {
		ip, err := c.podIP(ctx, "web")
		if err != nil {
			return err
		}
		_, err = c.get(ctx, "http://"+net.JoinHostPort(ip, "8080")+"/hostname")
		return err
	})
}

func (c *Cluster) informerAnswers(ctx context.Context, path string, words ...string) error {
	ip, err := c.podIP(ctx, "informer")
	if err != nil {
		return err
	}
	answer, err := c.get(ctx, "http://"+net.JoinHostPort(ip, "8080")+path)
	for _, word := range words {
		if err == nil && !strings.Contains(answer, word) {
			err = fmt.Errorf("%q is not in what it answers: %s", word, answer)
		}
	}
	return err
}

// sinceKubelet is the time since kubelet's start.
func (c *Cluster) sinceKubelet(ctx context.Context) (time.Duration, error) {
	out, err := c.machines[edge].Run(ctx, "systemctl", "show", "kubelet.service", "--property=ExecMainStartTimestampMonotonic", "--value")
	if err != nil {
		return 0, err
	}
	started, err := strconv.ParseInt(strings.TrimSpace(out), 10, 64) // µs
	if err != nil {
		return 0, err
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, err
	}
	return time.Duration(now.Nano()) - time.Duration(started)*time.Microsecond, nil
}

// readers are the resources that each user has read through the hub.
type readers map[string][]string

func (r readers) lines() []string {
	var lines []string
	for _, user := range slices.Sorted(maps.Keys(r)) {
		lines = append(lines, fmt.Sprintf("%-12s %s", user, strings.Join(r[user], " ")))
	}
	return lines
}

// hubUsers asks the hub whom it has views for.
func (c *Cluster) hubUsers(ctx context.Context) (readers, error) {
	text, err := c.get(ctx, "http://127.0.0.1:10267/debug/cache")
	if err != nil {
		return nil, err
	}
	var state struct {
		Views []struct{ User, Resource string }
	}
	if err := json.Unmarshal([]byte(text), &state); err != nil {
		return nil, err
	}
	users := readers{}
	for _, view := range state.Views {
		account, _, _ := strings.Cut(view.User, "#") // its UID
		user := account[strings.LastIndex(account, ":")+1:]
		resource, _, _ := strings.Cut(view.Resource, ".")
		if !slices.Contains(users[user], resource) {
			users[user] = append(users[user], resource)
		}
	}
	for _, resources := range users {
		slices.Sort(resources)
	}
	return users, nil
}
