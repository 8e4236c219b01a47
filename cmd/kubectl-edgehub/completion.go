package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/cmd/kubectl-edgehub/progress"
	"github.com/edgehub-io/edgehub/controller/autonomy"
	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/workload"
)

// kubectlCompleter is the executable that kubectl asks what may follow `kubectl edgehub`.
const kubectlCompleter = "kubectl_complete-edgehub"

func printScript(_ context.Context, words []string, _ *options, s streams) (progress.ExitCode, error) {
	if len(words) != 1 {
		return progress.ExitFailed, fmt.Errorf("want one shell: %s; see kubectl edgehub completion --help", strings.Join(cli.Shells(), ", "))
	}
	script, err := cli.Script(words[0], name)
	if err != nil {
		return progress.ExitFailed, err
	}
	_, err = io.WriteString(s.out, script)
	return progress.ExitDone, err
}

// completeLine returns what may stand for the last of words.
func completeLine(ctx context.Context, words []string) []string {
	var o options
	p := cli.Program{Flags: o.flags(), Values: o.flagValues, FlagsBehind: flagsBehind, Next: o.next}
	return p.Complete(ctx, words)
}

func (o *options) flagValues(ctx context.Context, flag, typed string) []string {
	switch flag {
	case "output":
		return []string{"json"}
	case "kubeconfig", "certificate-authority", "client-certificate", "client-key":
		return cli.Files(typed)
	case "context":
		return slices.Sorted(maps.Keys(o.kubeconfig().Contexts))
	case "cluster":
		return slices.Sorted(maps.Keys(o.kubeconfig().Clusters))
	case "user":
		return slices.Sorted(maps.Keys(o.kubeconfig().AuthInfos))
	case "namespace":
		return o.namespaces(ctx)
	}
	return nil
}

func flagsBehind(arguments []string) []string {
	verb := command{takes: statusFlags()} // before the verb is known
	if len(arguments) > 0 {
		verb = commands()[arguments[0]]
	}
	var names []string
	new(options).flags().VisitAll(func(f *pflag.Flag) {
		if slices.Contains(verb.takes, f.Name) || !slices.Contains(statusFlags(), f.Name) {
			names = append(names, f.Name)
		}
	})
	return names
}

// next returns what may follow arguments: a verb, or what it is about.
func (o *options) next(ctx context.Context, arguments []string, typed string) []string {
	names := slices.Sorted(maps.Keys(commands()))
	switch {
	case len(arguments) == 0:
		return append(names, "help")
	case len(arguments) == 1 && arguments[0] == "help":
		return names
	case len(arguments) == 1 && arguments[0] == "completion":
		return cli.Shells()
	case len(arguments) == 1 && slices.Contains([]string{"nodes", "release"}, arguments[0]):
		return o.nodeNames(ctx, arguments[0] == "release")
	case !slices.Contains([]string{"status", "pause", "resume"}, arguments[0]):
		return nil
	case len(arguments) == 1:
		if kind, _, ok := strings.Cut(typed, "/"); ok {
			return o.names(ctx, arguments[0], kind, kind+"/")
		}
		var out []string
		for _, kind := range []string{"ds", "sts"} {
			out = append(out, o.names(ctx, arguments[0], kind, kind+"/")...)
		}
		return out
	case len(arguments) == 2:
		return o.names(ctx, arguments[0], arguments[1], "")
	}
	return nil
}

// names returns those of the workloads of a kind that verb can be for, each behind prefix; none if
// kind is another one.
func (o *options) names(ctx context.Context, verb, kind, prefix string) []string {
	k := kindOf(kind)
	if k == "" {
		return nil
	}
	c, err := o.open()
	if err != nil {
		return nil
	}
	workloads, err := c.list(ctx, k, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil
	}
	var names []string
	for _, w := range workloads {
		if isFor(verb, w) {
			names = append(names, prefix+w.GetName())
		}
	}
	return names
}

func isFor(verb string, w workload.Object) bool {
	strategy, problem := workload.StrategyOf(w)
	if verb == "status" {
		return strategy != daemonset.Unmanaged || problem != ""
	}
	return strategy == daemonset.AdvancedRollingUpdate
}

// nodeNames returns those of all nodes, or of those that are away.
func (o *options) nodeNames(ctx context.Context, away bool) []string {
	c, err := o.open()
	if err != nil {
		return nil
	}
	list, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
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

func (o *options) namespaces(ctx context.Context) []string {
	c, err := o.open()
	if err != nil {
		return nil
	}
	list, err := c.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// kubeconfig returns the contents of the files; nothing if they cannot be read.
func (o *options) kubeconfig() *clientcmdapi.Config {
	config, err := o.rules.Load()
	if err != nil {
		return clientcmdapi.NewConfig()
	}
	return config
}
