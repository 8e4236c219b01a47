package main

import (
	"context"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/controller/autonomy"
	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/workload"
)

func (c *call) flagValues(ctx context.Context, flag, typed string) []string {
	switch flag {
	case "kubeconfig", "certificate-authority", "client-certificate", "client-key", "key":
		return cli.Files(typed)
	case "platform":
		return []string{"linux/amd64", "linux/arm64", "linux/arm/v7"}
	case "context":
		return slices.Sorted(maps.Keys(c.kubeconfig().Contexts))
	case "cluster":
		return slices.Sorted(maps.Keys(c.kubeconfig().Clusters))
	case "user":
		return slices.Sorted(maps.Keys(c.kubeconfig().AuthInfos))
	case "namespace":
		return c.namespaces(ctx)
	}
	return nil
}

// kubeconfig returns the contents of the files; nothing if they cannot be read.
func (c *call) kubeconfig() *clientcmdapi.Config {
	config, err := c.rules.Load()
	if err != nil {
		return clientcmdapi.NewConfig()
	}
	return config
}

// anyVersion lets the apiserver answer from its memory.
func anyVersion() metav1.ListOptions { return metav1.ListOptions{ResourceVersion: "0"} }

func (c *call) namespaces(ctx context.Context) []string {
	to, err := c.open()
	if err != nil {
		return nil
	}
	list, err := to.client.CoreV1().Namespaces().List(ctx, anyVersion())
	if err != nil {
		return nil
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// nodeNames returns what completes the name of a node: of any, or of those that are away.
func (c *call) nodeNames(away bool) func(context.Context, []string, string) []string {
	return func(ctx context.Context, before []string, _ string) []string {
		to, err := c.open()
		if err != nil || len(before) > 0 {
			return nil
		}
		list, err := to.client.CoreV1().Nodes().List(ctx, anyVersion())
		if err != nil {
			return nil
		}
		var names []string
		for i := range list.Items {
			if !away || autonomy.Away(&list.Items[i]) {
				names = append(names, list.Items[i].Name)
			}
		}
		return names
	}
}

// workloadNames returns what completes KIND/NAME, or NAME behind KIND, of the workloads that are wanted.
func (c *call) workloadNames(wanted func(workload.Object) bool) func(context.Context, []string, string) []string {
	return func(ctx context.Context, before []string, typed string) (out []string) {
		kind, _, isTyped := strings.Cut(typed, "/")
		switch {
		case len(before) > 1:
			return nil
		case len(before) == 1:
			return c.names(ctx, before[0], "", wanted)
		case isTyped:
			return c.names(ctx, kind, kind+"/", wanted)
		}
		for _, kind := range []string{"ds", "sts"} {
			out = append(out, c.names(ctx, kind, kind+"/", wanted)...)
		}
		return out
	}
}

// names returns the workloads of a kind that are wanted, each behind prefix; none if kind is another one.
func (c *call) names(ctx context.Context, kind, prefix string, wanted func(workload.Object) bool) []string {
	k := kindOf(kind)
	to, err := c.open()
	if err != nil || k == "" {
		return nil
	}
	workloads, err := to.list(ctx, k, anyVersion())
	if err != nil {
		return nil
	}
	var names []string
	for _, w := range workloads {
		if wanted(w) {
			names = append(names, prefix+w.GetName())
		}
	}
	return names
}

// isManaged reports whether w asked for a strategy, even if in vain.
func isManaged(w workload.Object) bool {
	strategy, problem := workload.StrategyOf(w)
	return strategy != daemonset.Unmanaged || problem != ""
}

func isPausable(w workload.Object) bool {
	strategy, _ := workload.StrategyOf(w)
	return strategy == daemonset.AdvancedRollingUpdate
}
