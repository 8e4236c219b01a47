package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/edgehub-io/edgehub/cmd/internal/completion"
	"github.com/edgehub-io/edgehub/controller/autonomy"
	"github.com/edgehub-io/edgehub/controller/daemonset"
)

// kubectlCompleter is the executable that kubectl asks what may follow `kubectl edgehub`.
const kubectlCompleter = "kubectl_complete-edgehub"

func printScript(_ context.Context, words []string, _ *options, s streams) (exitCode, error) {
	if len(words) != 1 {
		return exitFailed, fmt.Errorf("want one shell: %s; see kubectl edgehub completion --help", strings.Join(completion.Shells(), ", "))
	}
	script, err := completion.Script(words[0], name)
	if err != nil {
		return exitFailed, err
	}
	_, err = io.WriteString(s.out, script)
	return exitDone, err
}

// completeLine returns what may stand for the last of words.
func completeLine(ctx context.Context, words []string) []string {
	var o options
	p := completion.Program{Flags: o.flags(), Values: o.flagValues, FlagsBehind: flagsBehind, Next: o.next}
	return p.Complete(ctx, words)
}

func (o *options) flagValues(ctx context.Context, flag, typed string) []string {
	switch flag {
	case "output":
		return []string{"json"}
	case "kubeconfig", "certificate-authority", "client-certificate", "client-key":
		return completion.Files(typed)
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
		return completion.Shells()
	case len(arguments) == 1 && slices.Contains([]string{"nodes", "release"}, arguments[0]):
		return o.nodeNames(ctx, arguments[0] == "release")
	case !slices.Contains([]string{"status", "pause", "resume"}, arguments[0]):
		return nil
	case len(arguments) == 1:
		kind, _, ok := strings.Cut(typed, "/")
		if !ok {
			kind = kinds[0]
		}
		return o.daemonSets(ctx, arguments[0], kind, kind+"/")
	case len(arguments) == 2:
		return o.daemonSets(ctx, arguments[0], arguments[1], "")
	}
	return nil
}

// daemonSets returns the names of those that verb can be for, each behind prefix; none if kind
// is another one.
func (o *options) daemonSets(ctx context.Context, verb, kind, prefix string) []string {
	if !slices.Contains(kinds, strings.ToLower(kind)) {
		return nil
	}
	c, err := o.open()
	if err != nil {
		return nil
	}
	list, err := c.client.AppsV1().DaemonSets(c.namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil
	}
	var names []string
	for i := range list.Items {
		if isFor(verb, &list.Items[i]) {
			names = append(names, prefix+list.Items[i].Name)
		}
	}
	return names
}

func isFor(verb string, ds *appsv1.DaemonSet) bool {
	strategy, problem := daemonset.StrategyOf(ds)
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
