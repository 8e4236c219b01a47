package cri

import (
	"context"
	"fmt"
	"io"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
)

// Annotations that kubelet gives containers (pkg/kubelet/kuberuntime/labels.go).
const (
	gracePeriodAnnotation = "io.kubernetes.pod.terminationGracePeriod"
	preStopAnnotation     = "io.kubernetes.container.preStopHandler"
)

// defaultGrace is Kubernetes' default of terminationGracePeriodSeconds.
const defaultGrace = 30

// RestartOptions are how to restart a container.
type RestartOptions struct {
	// Container is its name; empty: the default one, or the only one.
	Container string
	// Policy returns by which policy kubelet starts the container name again, of the pod with uid.
	Policy func(ctx context.Context, uid types.UID, name string) (corev1.RestartPolicy, error)
	// Force restarts a container whose policy cannot be found out.
	Force bool
	// NoWait returns when the container has stopped.
	NoWait bool
	// Notes gets lines for people.
	Notes io.Writer
}

// Restart stops a container that runs, with its pod's grace period, and waits until kubelet has
// started the next one. A container that kubelet would not start again is not stopped. The
// container's preStop hook does not run: that is kubelet's part of a stop.
func (n *Node) Restart(ctx context.Context, pod types.NamespacedName, o RestartOptions) error {
	a, old, err := n.running(ctx, pod, o.Container)
	if err != nil {
		return err
	}
	policy, err := o.policy(ctx, a)
	if err != nil {
		return err
	}
	grace := gracePeriod(old.Annotations)
	fmt.Fprintf(o.Notes, "Stopping %s: it has %ds to end\n", a, grace)
	if old.Annotations[preStopAnnotation] != "" {
		fmt.Fprintln(o.Notes, "Its preStop hook does not run: only kubelet runs hooks")
	}
	if _, err := n.api.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: old.Id, Timeout: grace}); err != nil {
		if ctx.Err() != nil {
			return cli.Errorf(cli.Undone, "not waited for: %s may be stopping; kubelet starts it again", a)
		}
		return asked("stop "+a.String(), err)
	}
	if s, err := n.status(ctx, old.Id); err == nil && s != nil && s.ExitCode == 0 && policy == corev1.RestartPolicyOnFailure {
		return cli.Errorf(cli.Broken, "%s has ended with exit code 0, so that kubelet does not start it again: its restartPolicy is OnFailure", a)
	}
	if o.NoWait {
		fmt.Fprintf(o.Notes, "%s has stopped; kubelet starts it again\n", title(a))
		return nil
	}
	fmt.Fprintln(o.Notes, "It has stopped; waiting for kubelet to start it again")
	return n.awaitSuccessor(ctx, a, o.Notes)
}

// policy returns by which policy kubelet starts a again, and an error if nothing would.
func (o RestartOptions) policy(ctx context.Context, a app) (corev1.RestartPolicy, error) {
	policy, err := o.Policy(ctx, types.UID(a.uid), a.name)
	switch {
	case err != nil && !o.Force:
		return "", cli.Errorf(cli.NotNow, "%s was not stopped: it is not known whether kubelet would start it again (%w); --force restarts it all the same", a, err)
	case err != nil:
		fmt.Fprintf(o.Notes, "It is not known whether kubelet starts %s again: %v\n", a, err)
	case policy == corev1.RestartPolicyNever:
		return "", fmt.Errorf("%s was not stopped: nothing would start it again, as its restartPolicy is Never", a)
	}
	return policy, nil
}

// running returns a container that runs. What has ended is kubelet's to start.
func (n *Node) running(ctx context.Context, pod types.NamespacedName, name string) (app, *runtimeapi.ContainerStatus, error) {
	a, err := n.find(ctx, pod, name)
	if err != nil {
		return a, nil, err
	}
	s, err := n.status(ctx, a.runs[0].Id)
	switch {
	case err != nil:
		return a, nil, asked("look at "+a.String(), err)
	case s.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING:
		return a, s, nil
	case s.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED:
		return a, nil, cli.Errorf(cli.NotNow, "%s does not run: it ended with exit code %d; edgehubctl logs %s -c %s shows why", a, s.ExitCode, pod, a.name)
	}
	return a, nil, cli.Errorf(cli.NotNow, "%s does not run: kubelet is starting it", a)
}

// gracePeriod returns the pod's terminationGracePeriodSeconds.
func gracePeriod(annotations map[string]string) int64 {
	seconds, err := strconv.ParseInt(annotations[gracePeriodAnnotation], 10, 64)
	if err != nil || seconds < 0 {
		return defaultGrace
	}
	return seconds
}

// awaitSuccessor waits until kubelet has started the container that follows a's newest.
func (n *Node) awaitSuccessor(ctx context.Context, a app, notes io.Writer) error {
	for ctx.Err() == nil {
		next, gone, err := n.successor(ctx, a, a.runs[0])
		switch {
		case ctx.Err() != nil || away(err):
		case err != nil:
			return asked("look for the new container", err)
		case gone:
			return cli.Errorf(cli.Broken, "pod %s has left this node meanwhile; edgehubctl pods shows what runs now", a.pod)
		case next != nil && next.State == runtimeapi.ContainerState_CONTAINER_RUNNING:
			fmt.Fprintf(notes, "%s runs again (restart %d)\n", title(a), attempt(next))
			return nil
		case next != nil && next.State == runtimeapi.ContainerState_CONTAINER_EXITED:
			return cli.Errorf(cli.Broken, "%s was started again and has ended; edgehubctl logs %s -c %s shows why", a, a.pod, a.name)
		}
		cli.Pause(ctx, n.pace)
	}
	return cli.Errorf(cli.Undone, "not waited for: %s has stopped, and kubelet has not started it again yet: after many restarts it waits up to 5 minutes", a)
}
