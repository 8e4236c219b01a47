package imagepull

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sky is a cloud with the pods of one node.
type sky struct {
	mu      sync.Mutex
	pods    map[string]*corev1.Pod
	secrets map[string]*corev1.Secret
	changed chan struct{}
	offline bool
	events  []string
	message map[string]string // the message of the last event, by pod
	read    int               // secrets
}

func newSky() *sky {
	return &sky{pods: map[string]*corev1.Pod{}, secrets: map[string]*corev1.Secret{}, message: map[string]string{}, changed: make(chan struct{}, 1)}
}

func (s *sky) set(pods ...*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range pods {
		s.pods[p.Name] = p
	}
	s.wake()
}

func (s *sky) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, name)
	s.wake()
}

func (s *sky) wake() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *sky) online() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.offline
}

// be takes the cloud away, or has it return.
func (s *sky) be(offline bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offline = offline
	s.wake()
}

// follow calls each with the pods, now and after each change.
func (s *sky) follow(ctx context.Context, each func([]*corev1.Pod)) {
	for {
		s.mu.Lock()
		pods := slices.Collect(maps.Values(s.pods))
		s.mu.Unlock()
		each(pods)
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		}
	}
}

func (s *sky) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read++
	if secret := s.secrets[name]; secret != nil {
		return secret, nil
	}
	return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, name, fmt.Errorf("no pod of this node has it"))
}

// report gives the pods the conditions that a Puller reports, as package podreport does, while the cloud is there.
func (s *sky) report(p *Puller) {
	if !s.online() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, pod := range s.pods {
		for _, want := range p.Conditions(pod) {
			have := api.Condition(pod, want.Type)
			if have == nil && want.Status == "" || have != nil && have.Status == want.Status && have.Reason == want.Reason && have.Message == want.Message {
				continue
			}
			pod = pod.DeepCopy()
			pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == want.Type })
			if want.Status != "" {
				pod.Status.Conditions = append(pod.Status.Conditions, want)
			}
			s.pods[name] = pod
			s.wake()
		}
	}
}

func (s *sky) Event(pod *corev1.ObjectReference, eventType, reason, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.message[pod.Name] = message
	s.events = append(s.events, eventType+" "+pod.Name+" "+reason)
}

// condition returns the condition PodImageReady of a pod, or "nothing".
func (s *sky) condition(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := api.Condition(s.pods[name], api.ImageCondition)
	if c == nil {
		return "nothing"
	}
	return fmt.Sprintf("%s %s %s", c.Status, c.Reason, api.RevisionOf(c))
}

// node is a Puller with its engine and cloud.
type node struct {
	*Puller
	other  Engine // in place of engine, if not nil
	engine *scripted
	cloud  *sky
	dir    string
	others []string // that stay besides those of pre-pulls
	needed []string // of others
	stop   func()
}

// onNode runs a test in a synctest bubble, with a running Puller.
func onNode(t *testing.T, test func(t *testing.T, n *node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &node{engine: newScripted(), cloud: newSky(), dir: filepath.Join(t.TempDir(), "imagepull")}
		n.begin(t, 1)
		test(t, n)
		n.stop()
	})
}

// begin starts a Puller, like a start of the hub.
func (n *node) begin(t *testing.T, parallelism int) {
	t.Helper()
	var use Engine = n.engine
	if n.other != nil {
		use = n.other
	}
	var err error
	changed := make(chan struct{}, 1)
	n.Puller, err = New(n.options(use, changed, parallelism))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	puller := n.Puller
	go func() {
		defer close(done)
		var all sync.WaitGroup
		all.Go(func() { puller.Run(ctx) })
		all.Go(func() {
			n.cloud.follow(ctx, func(pods []*corev1.Pod) { puller.PodsChanged(pods); n.cloud.report(puller) })
		})
		all.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-changed:
					n.cloud.report(puller)
				}
			}
		})
		all.Wait()
	}()
	n.stop = func() { cancel(); <-done }
	synctest.Wait()
}

func (n *node) options(engine Engine, changed chan struct{}, parallelism int) Options {
	return Options{
		Dir: n.dir, Engine: engine, Cloud: n.cloud, Online: n.cloud.online, Parallelism: parallelism, Jitter: 10 * time.Second,
		Others: func() []string { return n.others }, Needed: func() []string { return n.needed },
		Changed: func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		},
		Logger: slog.New(slog.DiscardHandler),
	}
}

// retain has others stay.
func (n *node) retain(others ...string) {
	n.others = others
	n.OthersChanged()
}

// restart stops and starts the Puller, like a restart of the hub.
func (n *node) restart(t *testing.T) {
	t.Helper()
	n.stop()
	n.begin(t, 1)
}

// ask requests the pre-pull of a pod.
func (n *node) ask(t *testing.T, pod string) {
	t.Helper()
	n.cloud.mu.Lock()
	p := n.cloud.pods[pod]
	n.cloud.mu.Unlock()
	target, _, err := api.TargetOf(p)
	if err == nil {
		err = n.Request(p, target, false)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// wanted sets a pod that needs an upgrade to a revision with these images, and requests its pre-pull.
func (n *node) wanted(t *testing.T, pod, revision string, images ...string) {
	t.Helper()
	n.cloud.set(oldPod(pod, revision, images...))
	n.ask(t, pod)
}

// shows returns the state of a pod's pre-pull, and of each image.
func (n *node) shows(pod string) string {
	s, ok := n.State(types.NamespacedName{Namespace: "ns", Name: pod})
	if !ok {
		return "none"
	}
	return describe(s)
}

func describe(s api.ImagePull) string {
	out := string(s.State) + ":"
	for _, i := range s.Images {
		out += " " + i.Image + "=" + string(i.State)
	}
	return out
}

// oldPod returns a pod that needs an upgrade to a revision with these images.
func oldPod(name, revision string, images ...string) *corev1.Pod {
	return podWith(name, target(revision, images...))
}

func target(revision string, images ...string) api.Target {
	t := api.Target{Revision: revision, ImagePullSecrets: []string{"registry"}}
	for _, i := range images {
		t.Containers = append(t.Containers, api.TargetImage{Name: "c", Image: i})
	}
	return t
}

func podWith(name string, t api.Target) *corev1.Pod {
	controller := true
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID("uid-" + name),
		Labels:      map[string]string{appsv1.ControllerRevisionHashLabelKey: "old"},
		Annotations: map[string]string{api.TargetAnnotation: t.Encode()},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "DaemonSet", Name: "web", UID: "uid-web", Controller: &controller,
		}},
	}}
}

// newPod returns a pod of a revision, with containers if it runs.
func newPod(name, revision string, runs bool) *corev1.Pod {
	p := podWith(name, api.Target{})
	p.Annotations = nil
	p.Labels[appsv1.ControllerRevisionHashLabelKey] = revision
	status := corev1.ContainerStatus{Name: "c"}
	if runs {
		status.ContainerID = "containerd://1"
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{status}
	return p
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %s; want %s", what, got, want)
	}
}

// pass lets time pass, and waits until all goroutines have done what is due.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// sorted sorts calls whose order does not matter.
func sorted(calls string) string {
	list := strings.Split(calls, ", ")
	slices.Sort(list)
	return strings.Join(list, ", ")
}
