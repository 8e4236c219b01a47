package cri

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
)

// Labels that kubelet gives sandboxes and containers (k8s.io/kubelet/pkg/types).
const (
	podNameLabel       = "io.kubernetes.pod.name"
	podNamespaceLabel  = "io.kubernetes.pod.namespace"
	podUIDLabel        = "io.kubernetes.pod.uid"
	containerNameLabel = "io.kubernetes.container.name"
)

// defaultContainer is the annotation of a pod by which kubectl, too, chooses a container.
const defaultContainer = "kubectl.kubernetes.io/default-container"

// app is one container of a pod, by name.
type app struct {
	pod  types.NamespacedName
	uid  string
	name string
	// runs are its containers that the runtime has, the newest first.
	runs []*runtimeapi.Container
}

func (a app) String() string { return fmt.Sprintf("container %s of pod %s", a.name, a.pod) }

// find returns the container that name names. An empty name stands for the pod's default container,
// or the only one that has not ended well, as init containers do.
func (n *Node) find(ctx context.Context, pod types.NamespacedName, name string) (app, error) {
	sandbox, err := n.sandbox(ctx, pod)
	if err != nil {
		return app{}, err
	}
	uid := sandbox.Labels[podUIDLabel]
	runs, err := n.runs(ctx, uid)
	if err != nil {
		return app{}, asked("list containers", err)
	}
	if len(runs) == 0 {
		return app{}, cli.Errorf(cli.NotNow, "pod %s has no container yet: kubelet is starting it", pod)
	}
	if name == "" {
		name = n.defaultOf(ctx, sandbox, runs)
	}
	switch {
	case name == "":
		return app{}, cli.WrongUse("pod %s has several containers: choose one with -c: %s", pod, n.choices(ctx, runs))
	case len(runs[name]) == 0:
		return app{}, cli.WrongUse("pod %s has no container %q; it has: %s", pod, name, n.choices(ctx, runs))
	}
	return app{pod: pod, uid: uid, name: name, runs: runs[name]}, nil
}

// sandbox returns the newest sandbox of pod: that of an earlier pod of the same name, or of the
// time before a reboot, may still exist.
func (n *Node) sandbox(ctx context.Context, pod types.NamespacedName) (*runtimeapi.PodSandbox, error) {
	answer, err := n.api.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		LabelSelector: map[string]string{podNameLabel: pod.Name, podNamespaceLabel: pod.Namespace},
	}})
	switch {
	case err != nil:
		return nil, asked("look for the pod", err)
	case len(answer.Items) == 0:
		return nil, fmt.Errorf("no pod %s runs on this node; edgehubctl pods shows those that do", pod)
	}
	return slices.MaxFunc(answer.Items, func(a, b *runtimeapi.PodSandbox) int { return cmp.Compare(a.CreatedAt, b.CreatedAt) }), nil
}

// runs returns the containers of the pod with uid by name, the newest first, init containers and
// ephemeral ones too: CRI does not distinguish them.
func (n *Node) runs(ctx context.Context, uid string) (map[string][]*runtimeapi.Container, error) {
	answer, err := n.api.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		LabelSelector: map[string]string{podUIDLabel: uid},
	}})
	if err != nil {
		return nil, err
	}
	runs := map[string][]*runtimeapi.Container{}
	for _, c := range answer.Containers {
		name := c.Labels[containerNameLabel]
		runs[name] = append(runs[name], c)
	}
	for _, r := range runs {
		slices.SortFunc(r, func(a, b *runtimeapi.Container) int { return cmp.Compare(b.CreatedAt, a.CreatedAt) })
	}
	return runs, nil
}

// defaultOf returns the container that an empty name stands for, and "" if several may be meant.
func (n *Node) defaultOf(ctx context.Context, sandbox *runtimeapi.PodSandbox, runs map[string][]*runtimeapi.Container) string {
	if name := sandbox.Annotations[defaultContainer]; len(runs[name]) > 0 {
		return name
	}
	var only []string
	for name, r := range runs {
		if len(runs) == 1 || n.state(ctx, r[0].Id) != endedWell {
			only = append(only, name)
		}
	}
	if len(only) != 1 {
		return ""
	}
	return only[0]
}

// choices are the names of containers, in the order in which they were first started, each with
// its state: an init container has usually ended.
func (n *Node) choices(ctx context.Context, runs map[string][]*runtimeapi.Container) string {
	var oldest []*runtimeapi.Container
	for _, r := range runs {
		oldest = append(oldest, r[len(r)-1])
	}
	slices.SortFunc(oldest, func(a, b *runtimeapi.Container) int {
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.Labels[containerNameLabel], b.Labels[containerNameLabel]))
	})
	var words []string
	for _, c := range oldest {
		name := c.Labels[containerNameLabel]
		words = append(words, fmt.Sprintf("%s (%s)", name, n.state(ctx, runs[name][0].Id)))
	}
	return strings.Join(words, ", ")
}

// endedWell is the state of an init container that has done its work.
const endedWell = "ended with exit code 0"

// state returns the state of a container in words.
func (n *Node) state(ctx context.Context, id string) string {
	s, err := n.status(ctx, id)
	switch {
	case err != nil || s == nil:
		return "state unknown"
	case s.State == runtimeapi.ContainerState_CONTAINER_RUNNING:
		return "running"
	case s.State == runtimeapi.ContainerState_CONTAINER_EXITED:
		return fmt.Sprintf("ended with exit code %d", s.ExitCode)
	}
	return "starting"
}

// status returns the status of a container, and nil if there is no such container any more.
func (n *Node) status(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	answer, err := n.api.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	switch {
	case status.Code(err) == codes.NotFound:
		return nil, nil //nolint:nilnil // gone is an answer, too
	case err != nil:
		return nil, err
	}
	return answer.Status, nil
}

// successor returns the container that followed on that with id, the first of them, and nil as
// long as there is none. gone is true when the pod has left the node.
func (n *Node) successor(ctx context.Context, a app, after *runtimeapi.Container) (next *runtimeapi.Container, gone bool, err error) {
	runs, err := n.runs(ctx, a.uid)
	if err != nil {
		return nil, false, err
	}
	for _, c := range slices.Backward(runs[a.name]) {
		if c.CreatedAt > after.CreatedAt {
			return c, false, nil
		}
	}
	if len(runs) > 0 {
		return nil, false, nil
	}
	return nil, true, nil
}

// attempt is how often kubelet had restarted the app when it made the container.
func attempt(c *runtimeapi.Container) uint32 { return c.GetMetadata().GetAttempt() }
