package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/hub/checks"
)

// check runs the owner's checks as an upgrade in place does, for a pod or for none.
func (c *call) check(ctx context.Context, words []string) error {
	if len(words) > 0 {
		return c.onPod(check)(ctx, words)
	}
	return c.on(check)(ctx, nil)
}

func check(ctx context.Context, c *call) (err error) {
	var pod *corev1.Pod
	if c.pod.Name != "" {
		if pod, err = c.podToCheck(ctx); err != nil {
			return err
		}
	}
	scratch, err := os.MkdirTemp("", "edgehub-check-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	runner, all, failed := checks.Runner{Dir: c.checkDir, Scratch: scratch}, []checks.Result{}, 0
	for r, err := range runner.Run(ctx, pod) {
		switch {
		case ctx.Err() != nil:
			return cli.Errorf(cli.Undone, "interrupted: check %s was stopped", r.Check)
		case err != nil:
			return c.notChecked(err)
		case r.Required && !r.Passed:
			failed++
		}
		if all = append(all, r); c.output == "" {
			fmt.Fprintln(c.out, outcomeOf(r))
		}
	}
	if c.output == "" && len(all) == 0 {
		fmt.Fprintf(c.out, "No checks in %s.\n", c.checkDir)
	}
	if c.output != "" {
		err = cli.PrintJSON(c.out, all)
	}
	if failed > 0 {
		return cli.Errorf(cli.Failed, "%s failed: an upgrade in place would be undone", cli.Plural(failed, "required check"))
	}
	return err
}

// podToCheck returns the pod for the environment of the checks, as the cloud has it.
func (c *call) podToCheck(ctx context.Context) (*corev1.Pod, error) {
	pods, err := c.hub.Pods(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range pods {
		if p.Namespace == c.pod.Namespace && p.Name == c.pod.Name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("this node has no pod %s", c.pod)
}

// notChecked is for what could not be run.
func (c *call) notChecked(err error) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w. It takes root: sudo %s check", err, name)
	}
	return err
}

func outcomeOf(r checks.Result) string {
	switch {
	case r.Passed:
		return r.Check + ": passed"
	case r.Required:
		return r.Check + ": failed: " + r.Message
	}
	return r.Check + ": failed, which it may: " + r.Message
}
