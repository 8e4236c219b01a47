package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs/pkg/errgrpc"
)

// Environment has some environment variables of a running container.
type Environment struct {
	ID        string // of the container in CRI
	PodUID    string
	Container string            // its name in the pod
	Values    map[string]string // by name; those that it has
}

// Environments returns the values that environment variables of these names had when each of CRI's
// containers was started. Containers that do not run, or have none of them, are left out. Nothing
// else of an environment, which may contain secrets, is returned.
func (e *Engine) Environments(ctx context.Context, names ...string) ([]Environment, error) {
	ctx, cancel := briefContext(ctx)
	defer cancel()
	listed, err := e.client.TaskService().List(ctx, &tasks.ListTasksRequest{})
	if err != nil {
		return nil, fmt.Errorf("list the containers that run: %w", errgrpc.ToNative(err))
	}
	running := map[string]bool{}
	for _, t := range listed.Tasks {
		running[t.ID] = t.Status == task.Status_RUNNING
	}
	containers, err := e.client.Containers(ctx, `labels."io.cri-containerd.kind"==container`)
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	var all []Environment
	for _, c := range containers {
		if !running[c.ID()] {
			continue
		}
		info, err := c.Info(ctx, containerd.WithoutRefreshedMetadata) // as it was listed: without another call
		if err != nil {
			return nil, fmt.Errorf("read container %s: %w", c.ID(), err)
		}
		values, err := environmentValues(info.Spec.GetValue(), names)
		if err != nil {
			return nil, fmt.Errorf("read the spec of container %s: %w", c.ID(), err)
		}
		if len(values) > 0 {
			all = append(all, Environment{
				ID: c.ID(), PodUID: info.Labels["io.kubernetes.pod.uid"], Container: info.Labels["io.kubernetes.container.name"], Values: values,
			})
		}
	}
	return all, nil
}

// environmentValues returns the values of variables in an OCI runtime spec, in JSON.
func environmentValues(spec []byte, names []string) (map[string]string, error) {
	var s struct {
		Process struct {
			Env []string `json:"env"`
		} `json:"process"`
	}
	if err := json.Unmarshal(spec, &s); err != nil {
		return nil, err
	}
	values := map[string]string{}
	for _, variable := range s.Process.Env {
		if name, value, ok := strings.Cut(variable, "="); ok && slices.Contains(names, name) {
			values[name] = value
		}
	}
	return values, nil
}
