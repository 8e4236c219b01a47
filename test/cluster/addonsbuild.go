package cluster

import (
	"context"
	"io"
	"path/filepath"
)

// Addons are programs that a kubeadm cluster runs beside Kubernetes' own: CoreDNS, flannel's
// agent, and flannel's plugin for the container runtime.
type Addons struct{ CoreDNS, Flanneld, FlannelPlugin string }

var (
	corednsRecipe = recipe{
		title: "CoreDNS", name: "coredns", folder: "coredns", module: "github.com/coredns/coredns",
		took: "a minute on two cores", flags: staticFlags,
	}
	flannelRecipe = recipe{
		title: "flannel", name: "flanneld", folder: "flannel", module: "github.com/flannel-io/flannel",
		took: "half a minute on two cores", flags: staticFlags,
	}
	flannelPluginRecipe = recipe{
		title: "flannel's plugin", name: "flannelplugin", folder: "flannelcni", module: "github.com/containernetworking/plugins",
		took: "some seconds", flags: staticFlags, programs: []string{"github.com/containernetworking/plugins/plugins/meta/flannel"},
	}
)

func staticFlags(string) []string { return []string{"-trimpath", "-ldflags", "-s -w"} }

// BuildAddons builds those that the user's cache folder does not have, and returns their
// paths.
func BuildAddons(ctx context.Context, log io.Writer) (Addons, error) {
	progress := newProgress(log)
	var a Addons
	var err error
	if a.CoreDNS, err = corednsRecipe.build(ctx, progress); err != nil {
		return Addons{}, err
	}
	if a.Flanneld, err = flannelRecipe.build(ctx, progress); err != nil {
		return Addons{}, err
	}
	folder, err := flannelPluginRecipe.build(ctx, progress)
	a.FlannelPlugin = filepath.Join(folder, "flannel")
	return a, err
}
