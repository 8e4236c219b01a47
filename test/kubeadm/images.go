package kubeadm

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/edgehub-io/edgehub/test/cluster/freeport"
	"github.com/edgehub-io/edgehub/test/cluster/images"
)

// tags are those of images, by their name, as kubeadm wants them.
type tags map[string]string

// serveImages starts a registry that both machines reach, with every image.
func (c *Cluster) serveImages(ctx context.Context) error {
	var err error
	if c.tags, err = kubeadmTags(ctx, c.programs.kubernetes); err != nil {
		return err
	}
	c.tags["flannel"], c.tags["web"], c.tags["informer"] = "v1", "v1", "v1"
	port, err := freeport.Take()
	if err != nil {
		return err
	}
	if c.registry, err = images.Serve(net.JoinHostPort(hostIP, strconv.Itoa(port))); err != nil {
		return err
	}
	layers, err := c.layers(ctx)
	if err != nil {
		return err
	}
	for name, tag := range c.tags {
		l, ok := layers[name]
		if !ok {
			return fmt.Errorf("kubeadm wants an image %s that is not built here", name)
		}
		image, err := images.Command(l.command, l.layers...)
		if err == nil {
			err = c.registry.Push(ctx, name, tag, image)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// kubeadmTags asks kubeadm.
func kubeadmTags(ctx context.Context, kubernetes string) (tags, error) {
	out, err := exec.CommandContext(ctx, kubernetes, "kubeadm", "config", "images", "list", "--image-repository=x").Output()
	if err != nil {
		return nil, fmt.Errorf("ask kubeadm for its images: %w", err)
	}
	all := tags{}
	for line := range strings.Lines(string(out)) {
		name, tag, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok {
			return nil, fmt.Errorf("ask kubeadm for its images: %q is no image", line)
		}
		all[strings.TrimPrefix(name, "x/")] = tag
	}
	return all, nil
}

type imageParts struct {
	command []string
	layers  []v1.Layer
}

// layers are those of each image. Images share them: the components of Kubernetes are one
// program.
func (c *Cluster) layers(ctx context.Context) (map[string]imageParts, error) {
	const programs = "/usr/local/bin/"
	all := map[string]imageParts{}
	var broken error
	layer := func(files, links map[string]string) v1.Layer {
		l, err := images.Files(files, links)
		if err != nil && broken == nil {
			broken = err
		}
		return l
	}
	tools, err := iptables(ctx)
	if err != nil {
		return nil, err
	}
	rules := layer(tools.files, tools.links)
	kubernetes := layer(map[string]string{programs + "kubernetes": c.programs.kubernetes}, nil)
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"} {
		all[name] = imageParts{[]string{name}, []v1.Layer{kubernetes, layer(nil, map[string]string{programs + name: "kubernetes"})}}
	}
	proxy := all["kube-proxy"]
	proxy.layers = append(proxy.layers, rules)
	all["kube-proxy"] = proxy
	for name, path := range map[string]string{
		"coredns":  c.programs.addons.CoreDNS,
		"flannel":  c.programs.addons.Flanneld,
		"pause":    filepath.Join(c.programs.own, "pause"),
		"web":      filepath.Join(c.programs.own, "app"),
		"informer": filepath.Join(c.programs.own, "informer"),
	} {
		file := programs + name
		if name == "flannel" {
			file = programs + "flanneld"
		}
		all[name] = imageParts{[]string{file}, []v1.Layer{layer(map[string]string{file: path}, nil)}}
	}
	flannel := all["flannel"]
	flannel.layers = append(flannel.layers, rules)
	all["flannel"] = flannel
	return all, broken
}
