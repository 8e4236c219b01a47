package main

import (
	"context"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/hubclient"
	"github.com/edgehub-io/edgehub/cmd/edgehubctl/podview"
	"github.com/edgehub-io/edgehub/cmd/internal/cli"
)

func printScript(_ context.Context, c *call) error {
	script, err := cli.Script(c.args[0], name)
	if err != nil {
		return wrongUse("%w", err)
	}
	_, err = io.WriteString(c.out, script)
	return err
}

// completeLine returns what may stand for the last of words.
func completeLine(ctx context.Context, words []string) []string {
	var o options
	p := cli.Program{Flags: o.flags(), FlagsBehind: flagsBehind, Next: o.next}
	p.Values = func(_ context.Context, flag, typed string) []string { return flagValues(p.Flags.Args(), flag, typed) }
	return p.Complete(ctx, words)
}

// flagValues returns the values of a flag that is behind arguments, or before them.
func flagValues(arguments []string, flag, typed string) []string {
	switch flag {
	case "output":
		verb := command{wide: true}
		if len(arguments) > 0 {
			verb, _ = find(arguments[0])
		}
		return verb.outputs()
	case "output-file", "certificate-authority", "client-certificate", "client-key":
		return cli.Files(typed)
	}
	return nil
}

func flagsBehind(arguments []string) []string {
	if len(arguments) == 0 {
		return append(commonFlags(), "version")
	}
	verb, err := find(arguments[0])
	if err != nil {
		return nil
	}
	return append(commonFlags(), verb.flags...)
}

// next returns what may follow arguments.
func (o *options) next(ctx context.Context, arguments []string, typed string) []string {
	switch {
	case len(arguments) == 0:
		return append(commandNames(), "help")
	case arguments[0] == "help" && len(arguments) == 1:
		return commandNames()
	}
	verb, err := find(arguments[0])
	switch {
	case err != nil || len(arguments) > len(verb.args):
		return nil
	case verb.name == "completion":
		return cli.Shells()
	}
	wanted := podview.NeedsUpgrade
	switch {
	case ofContainer(verb.name):
		wanted = func(*corev1.Pod) bool { return true }
	case verb.name != "pull" && verb.name != "upgrade":
		wanted = func(p *corev1.Pod) bool { return metav1.GetControllerOf(p) != nil }
	}
	return o.podNames(ctx, typed, wanted)
}

// podNames returns the pods that are wanted, as they are to be typed.
func (o *options) podNames(ctx context.Context, typed string, wanted func(*corev1.Pod) bool) []string {
	h, err := hubclient.New(o.address, o.tls)
	if err != nil {
		return nil
	}
	pods, err := h.Pods(ctx)
	if err != nil {
		return nil
	}
	var names []string
	for _, p := range pods {
		switch {
		case !wanted(p), o.namespace != "" && o.namespace != p.Namespace:
		case o.namespace != "" && !strings.Contains(typed, "/"):
			names = append(names, p.Name)
		default:
			names = append(names, p.Namespace+"/"+p.Name)
		}
	}
	return names
}
