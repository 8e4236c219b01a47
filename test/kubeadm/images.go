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
	p := packer{contents: c.programs.contents(), packed: map[string]v1.Layer{}}
	if p.rules, err = iptables(ctx); err != nil {
		return err
	}
	for name, tag := range c.tags {
		image, err := p.pack(name)
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

// content is what an image has in /usr/local/bin.
type content struct {
	path  string // of a program on the host
	name  string // of the program in the image
	link  string // another name of it; empty: none
	rules bool   // iptables, too
}

// contents are those of all images, by their name.
func (p *programs) contents() map[string]content {
	kubernetes := func(name string) content { return content{path: p.kubernetes, name: "kubernetes", link: name} }
	proxy := kubernetes("kube-proxy")
	proxy.rules = true
	own := func(name string) content { return content{path: filepath.Join(p.own, name), name: name} }
	return map[string]content{
		"etcd":                    kubernetes("etcd"),
		"kube-apiserver":          kubernetes("kube-apiserver"),
		"kube-controller-manager": kubernetes("kube-controller-manager"),
		"kube-scheduler":          kubernetes("kube-scheduler"),
		"kube-proxy":              proxy,
		"coredns":                 {path: p.addons.CoreDNS, name: "coredns"},
		"flannel":                 {path: p.addons.Flanneld, name: "flanneld", rules: true},
		"pause":                   own("pause"),
		"web":                     own("app"),
		"informer":                own("informer"),
	}
}

// packer packs each program once: images that have the same share the layer.
type packer struct {
	contents map[string]content
	rules    hostTools
	packed   map[string]v1.Layer // by the program's path on the host
}

func (p *packer) pack(name string) (v1.Image, error) {
	const folder = "/usr/local/bin/"
	c, ok := p.contents[name]
	if !ok {
		return nil, fmt.Errorf("kubeadm wants an image %s that is not built here", name)
	}
	program, err := p.layer(c.path, map[string]string{folder + c.name: c.path}, nil)
	if err != nil {
		return nil, err
	}
	layers, command := []v1.Layer{program}, folder+c.name
	if c.link != "" {
		link, err := images.Files(nil, map[string]string{folder + c.link: c.name})
		if err != nil {
			return nil, err
		}
		layers, command = append(layers, link), folder+c.link
	}
	if c.rules {
		rules, err := p.layer("iptables", p.rules.files, p.rules.links)
		if err != nil {
			return nil, err
		}
		layers = append(layers, rules)
	}
	return images.Command([]string{command}, layers...)
}

func (p *packer) layer(key string, files, links map[string]string) (v1.Layer, error) {
	var err error
	if p.packed[key] == nil {
		p.packed[key], err = images.Files(files, links)
	}
	return p.packed[key], err
}
