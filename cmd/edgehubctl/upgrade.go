package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/podview"
	"github.com/edgehub-io/edgehub/cmd/internal/format"
	"github.com/edgehub-io/edgehub/cmd/internal/screen"
	"github.com/edgehub-io/edgehub/ota/nodeapi"
)

// upgraded is the output of upgrade --wait as JSON, an interface to scripts.
type upgraded struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`       // that was upgraded
	Successor string `json:"successor"` // that came in its place
	Revision  string `json:"revision"`  // of the replacement
	// Seconds are from the request until the replacement was Ready, and StableSeconds for
	// how long it was seen to stay so, without a restart.
	Seconds       float64 `json:"seconds"`
	StableSeconds float64 `json:"stableSeconds"`
}

// upgradePod requests the upgrade of a pod. With --wait it returns when the new pod is Ready
// and has stayed so for a while.
func upgradePod(ctx context.Context, c *call) error {
	pod, err := c.pod()
	if err != nil {
		return err
	}
	path := nodeapi.UpgradePath(pod.Namespace, pod.Name)
	if !c.wait {
		return c.sayOf(c.hub.ask(ctx, http.MethodPost, path))
	}
	ctx, cancel := c.limited(ctx)
	defer cancel()
	before, err := c.hub.nodePods(ctx) // only the old pod shows what its replacement will be
	if err != nil {
		return err
	}
	began := time.Now()
	answer, err := c.hub.ask(ctx, http.MethodPost, path)
	if err != nil {
		return err
	}
	if c.output == "" {
		fmt.Fprintln(c.out, answer)
	}
	s, err := podview.NewReplacement(before, pod, c.settle)
	if err != nil {
		return err
	}
	return c.waitForReplacement(ctx, s, began)
}

// waitForReplacement polls the node's pods. That is cheap: the hub has them in memory, and few
// people wait at once.
func (c *call) waitForReplacement(ctx context.Context, s *podview.Replacement, began time.Time) error {
	report := c.progressReporter()
	waiting := "for the hub"
	for {
		asked := time.Now()
		pods, err := c.hub.nodePods(ctx)
		switch {
		case ctx.Err() != nil:
			return c.unfinished(ctx, "waiting "+waiting, "The upgrade goes on; "+name+" pods shows the pod")
		case err != nil && !isPassing(err):
			return err
		case err != nil:
			report(err.Error()+"; the upgrade goes on all the same", time.Since(began))
		default:
			var done bool
			if done, waiting, err = s.Check(pods, asked, time.Now()); err != nil {
				return err
			}
			if done {
				return c.arrived(s, began)
			}
			report("waiting "+waiting, time.Since(began))
		}
		pause(ctx, c.pace)
	}
}

func (c *call) arrived(s *podview.Replacement, began time.Time) error {
	revision, took := podview.RevisionOf(s.Pod), s.Ready.Sub(began)
	if c.output == "json" {
		if err := printJSON(c.out, upgraded{
			Namespace: s.Old.Namespace, Pod: s.Old.Name, Successor: s.Pod.Name,
			Revision: revision, Seconds: took.Round(time.Millisecond).Seconds(), StableSeconds: s.Settle.Seconds(),
		}); err != nil {
			return err
		}
	}
	if revision != s.Target {
		return fmt.Errorf("pod %s/%s is Ready, but of revision %s, not of %s: its DaemonSet was changed meanwhile", s.Old.Namespace, s.Pod.Name, revision, s.Target)
	}
	if c.output == "" {
		fmt.Fprintf(c.out, "Pod %s/%s of revision %s is Ready, after %s, and has stayed so for %v\n", s.Old.Namespace, s.Pod.Name, revision, format.Brief(took), s.Settle)
	}
	return nil
}

// progressReporter returns a function that shows what the command waits for: on a terminal in place,
// with the time so far; elsewhere on stderr, when it has changed.
func (c *call) progressReporter() func(text string, took time.Duration) {
	size, isTerminal := screen.Terminal(c.out)
	if !isTerminal || c.output != "" {
		n := &notes{w: c.err}
		return func(text string, _ time.Duration) { n.note(text) }
	}
	s := screen.New(c.out, size)
	return func(text string, took time.Duration) {
		s.Draw(fmt.Sprintf("%s (%s)\n", text, format.Seconds(took)))
	}
}
