package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/podview"
	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/ota/api"
)

func pods(ctx context.Context, c *call) error {
	all, err := c.hub.Pods(ctx)
	if err != nil {
		return err
	}
	pulls, err := c.hub.ImagePulls(ctx)
	if err != nil {
		return err
	}
	var upgrades api.UpgradeList // an older hub has none
	if err := c.hub.ReadIfKnown(ctx, api.Upgrades, &upgrades); err != nil {
		return err
	}
	reports := []podview.Report{}
	for _, pod := range all {
		if c.namespace == "" || c.namespace == pod.Namespace {
			report := podview.Of(pod, pulls)
			report.AddState(pod, upgrades.Items, time.Now())
			reports = append(reports, report)
		}
	}
	var node api.NodeState // empty with an older hub, which has no such path or field
	if err := c.hub.ReadIfKnown(ctx, api.Node, &node); err != nil {
		return err
	}
	c.warnOffline(ctx)
	c.printMissing(node.Missing)
	switch {
	case c.output == "json":
		return printJSON(c.out, reports)
	case len(reports) == 0:
		fmt.Fprintln(c.out, "No pods on this node.")
	default:
		if c.output == wide {
			fmt.Fprint(c.out, podview.WideTable(reports, time.Now()))
		} else {
			fmt.Fprint(c.out, podview.Table(reports, time.Now(), c.width()))
		}
		for i := range reports {
			if r := &reports[i]; r.Blocked != "" {
				fmt.Fprint(c.out, "\n"+cli.Hanging("", fmt.Sprintf("%s/%s cannot be upgraded: %s.", r.Namespace, r.Pod, r.Blocked), 0, c.width()))
			}
		}
	}
	return nil
}

// printMissing prints the workloads that should have a pod on this node and have none, before the pods; with -o json, to stderr.
func (c *call) printMissing(missing []api.Missing) {
	out := c.out
	if c.output == "json" {
		out = c.err
	}
	for _, m := range missing {
		if c.namespace == "" || c.namespace == m.Namespace {
			kind := strings.ToLower(m.Kind)
			text := fmt.Sprintf("%s %s/%s has had no pod on this node for %s: %s. The admin sees more with kubectl describe %s %s -n %s",
				kind, m.Namespace, m.Workload, cli.Age(m.Since, time.Now()), m.Why, kind, m.Workload, m.Namespace)
			fmt.Fprint(out, cli.Hanging("MISSING: ", text, len("MISSING: "), c.width()))
		}
	}
}

// fine is the hub's readiness while the cloud can be reached.
const fine = "OK"

// warnOffline warns, on stderr so that no script takes it for a pod, that the list may be out
// of date while the cloud is away. The hub says since when, and why; if it says nothing, as an
// older hub does, there is no warning.
func (c *call) warnOffline(ctx context.Context) {
	state, err := c.hub.Ask(ctx, http.MethodGet, api.Readyz)
	if err != nil || state == fine {
		return
	}
	const next = "; a newer version may exist that this node has not been told of"
	fmt.Fprint(c.err, cli.Hanging("", strings.TrimPrefix(state, fine+", ")+next, 0, c.width()))
}

// pod parses NAMESPACE/POD, or POD with -n or in the namespace default.
func (c *call) pod() (podview.Name, error) {
	namespace, pod, ok := strings.Cut(c.args[0], "/")
	if !ok {
		namespace, pod = cmp.Or(c.namespace, "default"), c.args[0]
	}
	if namespace == "" || pod == "" || strings.Contains(pod, "/") {
		return podview.Name{}, wrongUse("%q: want a pod as NAMESPACE/POD, as edgehubctl pods shows them", c.args[0])
	}
	if ok && c.namespace != "" && c.namespace != namespace {
		return podview.Name{}, wrongUse("pod %s is not in namespace %s: leave -n out", c.args[0], c.namespace)
	}
	return podview.Name{Namespace: namespace, Name: pod}, nil
}
