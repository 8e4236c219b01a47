package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs/pkg/errgrpc"
)

// Variable is the value of an environment variable in a running container.
type Variable struct {
	PodUID    string
	Container string // its name in the pod
	Value     string
}

// Environment returns the value that an environment variable had when each of CRI's containers
// was started. Containers that do not run, or do not have the variable, are left out. Nothing
// else of an environment, which may contain secrets, is returned.
func (e *Engine) Environment(ctx context.Context, name string) ([]Variable, error) {
	ctx, cancel := briefContext(ctx)
	defer cancel()
	listed, err := e.client.TaskService().List(ctx, &tasks.ListTasksRequest{})
	if err != nil {
		return nil, fmt.Errorf("list the containers that run: %w", errgrpc.ToNative(err))
	}
	runs := map[string]bool{}
	for _, t := range listed.Tasks {
		runs[t.ID] = t.Status == task.Status_RUNNING
	}
	containers, err := e.client.Containers(ctx, `labels."io.cri-containerd.kind"==container`)
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	var all []Variable
	for _, c := range containers {
		if !runs[c.ID()] {
			continue
		}
		info, err := c.Info(ctx, containerd.WithoutRefreshedMetadata) // as it was listed: without another call
		if err != nil {
			return nil, fmt.Errorf("read container %s: %w", c.ID(), err)
		}
		value, ok, err := environmentValue(info.Spec.GetValue(), name)
		if err != nil {
			return nil, fmt.Errorf("read the spec of container %s: %w", c.ID(), err)
		}
		if ok {
			all = append(all, Variable{
				PodUID: info.Labels["io.kubernetes.pod.uid"], Container: info.Labels["io.kubernetes.container.name"], Value: value,
			})
		}
	}
	return all, nil
}

// environmentValue returns the value of a variable in an OCI runtime spec, in JSON.
func environmentValue(spec []byte, name string) (value string, ok bool, err error) {
	var s struct {
		Process struct {
			Env []string `json:"env"`
		} `json:"process"`
	}
	if err := json.Unmarshal(spec, &s); err != nil {
		return "", false, err
	}
	for _, variable := range s.Process.Env {
		if v, found := strings.CutPrefix(variable, name+"="); found {
			value, ok = v, true
		}
	}
	return value, ok, nil
}
