package main

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/cmd/kubectl-edgehub/progress"
	"github.com/edgehub-io/edgehub/controller/workload"
)

// statusOfAll prints a line for each workload that opted in, of the namespace or of all. Its exit
// code is the highest of theirs.
func (c *call) statusOfAll(ctx context.Context, to *cluster) error {
	if c.all {
		to.namespace = metav1.NamespaceAll
	}
	workloads, err := optedIn(ctx, to)
	if err != nil {
		return err
	}
	if len(workloads) == 0 && c.output == "" {
		where := "any namespace"
		if !c.all {
			where = "namespace " + to.namespace
		}
		fmt.Fprintf(c.err, "no DaemonSet or StatefulSet in %s has opted into an update strategy of edgehub\n", where)
		return nil
	}
	reports, err := evaluateAll(ctx, to, workloads)
	if err != nil {
		return err
	}
	if c.output == "" {
		fmt.Fprint(c.out, progress.Table(reports))
	} else {
		err = cli.PrintJSON(c.out, map[string]any{"items": reports})
	}
	if err != nil {
		return err
	}
	code := cli.Done
	for _, r := range reports {
		code = max(code, r.State.ExitCode())
	}
	return cli.Exit(code)
}

// optedIn returns the workloads that asked for a strategy, even if in vain: the DaemonSets first.
func optedIn(ctx context.Context, c *cluster) ([]workload.Object, error) {
	var out []workload.Object
	for _, kind := range []workload.Kind{workload.DaemonSet, workload.StatefulSet} {
		all, err := c.list(ctx, kind, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, w := range all {
			if isManaged(w) {
				out = append(out, w)
			}
		}
	}
	return out, nil
}

// list returns all workloads of a kind in c.namespace, or in all namespaces if that is "".
func (c *cluster) list(ctx context.Context, kind workload.Kind, o metav1.ListOptions) ([]workload.Object, error) {
	var out []workload.Object
	if kind == workload.StatefulSet {
		list, err := c.client.AppsV1().StatefulSets(c.namespace).List(ctx, o)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			out = append(out, &list.Items[i])
		}
		return out, nil
	}
	list, err := c.client.AppsV1().DaemonSets(c.namespace).List(ctx, o)
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out, nil
}

// evaluateAll reads the pods of one workload at a time.
func evaluateAll(ctx context.Context, c *cluster, workloads []workload.Object) ([]*progress.Report, error) {
	check := leaseCheck{c: c}
	reports := []*progress.Report{}
	for _, w := range workloads {
		pods, err := podsOf(ctx, c, w)
		if err != nil {
			return nil, err
		}
		r, err := evaluate(ctx, c, &check, w, pods)
		if err != nil {
			return nil, err
		}
		reports = append(reports, r)
	}
	return reports, nil
}
