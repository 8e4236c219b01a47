package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/errdefs/pkg/errgrpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// Name returns what the container runtime calls itself: containerd, or the name of one that only speaks CRI, with
// which every other method fails.
func (e *Engine) Name(ctx context.Context) (string, error) {
	ctx, cancel := briefContext(ctx)
	defer cancel()
	version, err := cri.NewRuntimeServiceClient(e.conn).Version(ctx, &cri.VersionRequest{})
	if err != nil {
		return "", fmt.Errorf("ask for the container runtime's name: %w", errgrpc.ToNative(err))
	}
	return version.GetRuntimeName(), nil
}

// defaultHosts are CRI's default folders for the configuration of registries.
const defaultHosts = "/etc/containerd/certs.d:/etc/docker/certs.d"

// node is the configuration with which CRI pulls. Each call reads it again: it may have changed
// when containerd was restarted.
type node struct {
	snapshotter        string
	registry           *registryConfig // nil from containerd 2.0 on, which does not report it
	snapshots, content string          // containerd's folders, as containerd sees them
	sandbox            string          // the image of sandboxes; "" from containerd 2.0 on
}

// node reads CRI's configuration.
func (e *Engine) node(ctx context.Context) (node, error) {
	ctx, cancel := briefContext(ctx)
	defer cancel()
	status, err := cri.NewRuntimeServiceClient(e.conn).Status(ctx, &cri.StatusRequest{Verbose: true})
	if err != nil {
		return node{}, fmt.Errorf("ask CRI for its configuration: %w", errgrpc.ToNative(err))
	}
	info, err := cri.NewImageServiceClient(e.conn).ImageFsInfo(ctx, &cri.ImageFsInfoRequest{})
	if err != nil {
		return node{}, fmt.Errorf("ask CRI where it keeps images: %w", errgrpc.ToNative(err))
	}
	if len(info.GetImageFilesystems()) == 0 {
		return node{}, engineapi.Errorf(engineapi.Other, "containerd at %s does not say where it keeps images", e.opts.Address)
	}
	n := node{snapshots: info.ImageFilesystems[0].GetFsId().GetMountpoint()}
	roots, err := e.roots(ctx)
	if err != nil {
		return node{}, err
	}
	said := readConfig(status.GetInfo()["config"])
	n.snapshotter = said.Containerd.Snapshotter
	if n.snapshotter == "" {
		n.snapshotter = roots.snapshotterAt(n.snapshots)
	}
	if n.snapshotter == "" {
		return node{}, engineapi.Errorf(engineapi.Other, "containerd at %s does not say which snapshotter CRI uses, and none is at %s", e.opts.Address, n.snapshots)
	}
	n.content = roots.content
	if n.content == "" {
		n.content = path.Dir(n.snapshots)
	}
	n.registry, n.sandbox = said.Registry, said.Sandbox
	return n, nil
}

// configuration is the part of CRI's configuration that containerd 1.6 and 1.7 report. Later
// versions omit it.
type configuration struct {
	Containerd struct {
		Snapshotter string `json:"snapshotter"`
	} `json:"containerd"`
	Registry *registryConfig `json:"registry"`
	Sandbox  string          `json:"sandboxImage"`
}

// readConfig ignores what it does not understand: other versions may report something else.
func readConfig(text string) configuration {
	var c configuration
	_ = json.Unmarshal([]byte(text), &c)
	return c
}

// roots are the folders of containerd's plugins.
type roots struct {
	snapshots map[string]string // by the snapshotter's name
	content   string
}

func (e *Engine) roots(ctx context.Context) (roots, error) {
	answer, err := e.client.IntrospectionService().Plugins(ctx,
		"type=="+string(plugins.SnapshotPlugin), "type=="+string(plugins.ContentPlugin))
	if err != nil {
		return roots{}, fmt.Errorf("ask which snapshotters there are: %w", err)
	}
	r := roots{snapshots: map[string]string{}}
	for _, p := range answer.Plugins {
		switch p.Type {
		case string(plugins.ContentPlugin):
			r.content = p.Exports["root"]
		case string(plugins.SnapshotPlugin):
			r.snapshots[p.ID] = p.Exports["root"]
		}
	}
	return r, nil
}

// snapshotterAt returns the snapshotter that keeps its files in the folder, or "". The folders of
// the default snapshotters have their names.
func (r roots) snapshotterAt(folder string) string {
	for name, root := range r.snapshots {
		if root != "" && path.Clean(root) == path.Clean(folder) {
			return name
		}
	}
	name, found := strings.CutPrefix(path.Base(folder), fmt.Sprintf("%s.", plugins.SnapshotPlugin))
	if !found {
		return ""
	}
	return name
}
