package cluster

import (
	"context"
	"io"
	"strings"
)

// kubernetesRecipe makes one binary with all components in it.
var kubernetesRecipe = recipe{
	title:  "Kubernetes",
	name:   "kubernetes",
	folder: "kubernetes",
	module: "k8s.io/kubernetes",
	took:   "5 minutes on two cores",
	flags: func(version string) []string {
		return []string{"-trimpath", "-ldflags", kubernetesLinkerFlags(version)}
	},
}

// BuildKubernetes builds the Kubernetes binary unless the user's cache folder
// has it already, and returns its path. The first build takes some minutes.
func BuildKubernetes(ctx context.Context, log io.Writer) (string, error) {
	return kubernetesRecipe.build(ctx, newProgress(log))
}

// kubernetesLinkerFlags give the components the version that a release would
// report. Without it they call themselves v0.0.0, and the apiserver serves no API.
func kubernetesLinkerFlags(version string) string {
	flags := []string{"-s", "-w"}
	numbers := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags,
			"-X", pkg+".gitVersion="+version,
			"-X", pkg+".gitMajor="+numbers[0],
			"-X", pkg+".gitMinor="+numbers[1])
	}
	return strings.Join(flags, " ")
}
