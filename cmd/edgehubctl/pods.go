package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/view"
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
	upgrades, err := c.hub.Upgrades(ctx)
	if err != nil {
		return err
	}
	reports := []view.Pod{}
	for _, pod := range all {
		if c.namespace == "" || c.namespace == pod.Namespace {
			report := view.PodOf(pod, pulls)
			report.AddState(pod, upgrades.Items, time.Now())
			reports = append(reports, report)
		}
	}
	var node api.NodeState
	if err := c.hub.Read(ctx, api.Node, &node); err != nil {
		return err
	}
	c.warnOffline(ctx)
	c.printMissing(node.Missing)
	if len(reports) == 0 {
		return c.print(reports, "No pods on this node.\n")
	}
	return c.print(reports, c.podTable(reports))
}

func (c *call) podTable(pods []view.Pod) string {
	text := view.PodTable(pods, time.Now(), c.width())
	if c.output == wide {
		text = view.WidePodTable(pods, time.Now())
	}
	for i := range pods {
		p := &pods[i]
		if p.Blocked != "" {
			text += "\n" + cli.Hanging("", fmt.Sprintf("%s/%s cannot be upgraded: %s.", p.Namespace, p.Pod, p.Blocked), 0, c.width())
		}
		if p.Upgrade != nil {
			text += "\n" + cli.Hanging("", view.InPlaceText(p.Upgrade), 0, c.width())
		}
	}
	return text
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
// of date while the cloud is away. The hub says since when, and why.
func (c *call) warnOffline(ctx context.Context) {
	state, err := c.hub.Ask(ctx, http.MethodGet, api.Readyz)
	if err != nil || state == fine {
		return
	}
	const next = "; a newer version may exist that this node has not been told of"
	fmt.Fprint(c.err, cli.Hanging("", strings.TrimPrefix(state, fine+", ")+next, 0, c.width()))
}
