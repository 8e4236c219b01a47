package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/cmd/kubectl-edgehub/progress"
	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/api"
)

// pause stops a rollout by its annotation.
func pause(ctx context.Context, c *cluster, name string, out io.Writer) error {
	ds, options, err := pausable(ctx, c, name)
	if err != nil {
		return err
	}
	if options.Paused {
		fmt.Fprintf(out, "daemonset.apps/%s is paused already\n", name)
		return nil
	}
	if err := annotate(ctx, c, ds, api.PausedAnnotation, "true"); err != nil {
		return err
	}
	fmt.Fprintf(out, "daemonset.apps/%s paused: no further pod is deleted; those that are being replaced come up again\n", name)
	return nil
}

// resume ends a pause, or else closes an open circuit breaker. Not both at once: whoever ends a
// pause may not know of the breaker.
func resume(ctx context.Context, c *cluster, name string, out io.Writer) error {
	ds, options, err := pausable(ctx, c, name)
	if err != nil {
		return err
	}
	revision := rollout.HaltedRevision(ds)
	isHalted := revision != "" && revision != options.Continue
	switch {
	case ds.Annotations[api.PausedAnnotation] != "":
		if err := annotate(ctx, c, ds, api.PausedAnnotation, nil); err != nil {
			return err
		}
		fmt.Fprintf(out, "daemonset.apps/%s resumed\n", name)
		if isHalted {
			fmt.Fprintf(out, "but its circuit breaker holds it still: %s\nTo go on all the same, resume it once more.\n",
				daemonset.Condition(ds, api.HaltedCondition).Message)
			return cli.Exit(progress.ExitHeldUp)
		}
	case isHalted:
		if err := annotate(ctx, c, ds, api.ContinueAnnotation, revision); err != nil {
			return err
		}
		fmt.Fprintf(out, "daemonset.apps/%s resumed: it goes on with revision %s, past the circuit breaker. It was halted because: %s\n",
			name, revision, daemonset.Condition(ds, api.HaltedCondition).Message)
	default:
		fmt.Fprintf(out, "daemonset.apps/%s is neither paused nor halted\n", name)
	}
	return nil
}

// pausable reads a DaemonSet and checks that its rollout can be paused or resumed. Wrong options
// are no reason not to pause.
func pausable(ctx context.Context, c *cluster, name string) (*appsv1.DaemonSet, rollout.Options, error) {
	ds, err := c.client.AppsV1().DaemonSets(c.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, rollout.Options{}, err
	}
	strategy, problem := daemonset.StrategyOf(ds)
	switch {
	case problem != "":
		return nil, rollout.Options{}, fmt.Errorf("daemonset %s/%s: %s", ds.Namespace, ds.Name, problem)
	case strategy == daemonset.OTA:
		return nil, rollout.Options{}, fmt.Errorf("daemonset %s/%s asks for OTA: the owners of the nodes decide when to upgrade, "+
			"and there is nothing to pause or resume", ds.Namespace, ds.Name)
	case strategy != daemonset.AdvancedRollingUpdate:
		return nil, rollout.Options{}, progress.NotOptedIn{Workload: ds}
	}
	options, _ := rollout.ParseOptions(ds.Annotations) // the zero value is not paused
	return ds, options, nil
}

// annotate sets one annotation of ds, or removes it when value is nil. It fails
// when another DaemonSet has the name by now.
func annotate(ctx context.Context, c *cluster, ds *appsv1.DaemonSet, key string, value any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": ds.UID, "annotations": map[string]any{key: value},
	}})
	if err != nil {
		return err
	}
	_, err = c.client.AppsV1().DaemonSets(ds.Namespace).Patch(ctx, ds.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: name})
	return err
}
