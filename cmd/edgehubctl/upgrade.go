package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/hubclient"
	"github.com/edgehub-io/edgehub/cmd/edgehubctl/view"
	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/ota/api"
)

// upgraded is the output of upgrade --wait and rollback --wait as JSON, an interface to scripts.
type upgraded struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`       // that was upgraded
	Successor string `json:"successor"` // that came in its place; the pod itself after a rollback
	Revision  string `json:"revision"`  // of the replacement
	// Seconds are from the request until the replacement was Ready, and StableSeconds for
	// how long it was seen to stay so, without a restart.
	Seconds       float64 `json:"seconds"`
	StableSeconds float64 `json:"stableSeconds"`
}

// upgrade upgrades a pod, or with --all every pod that needs it.
func (c *call) upgrade(ctx context.Context, words []string) error {
	limited, cancel := c.limited(ctx)
	defer cancel()
	switch {
	case c.timeout > 0 && !c.wait && (c.noPull || c.when.later()):
		return errNothingToWaitFor
	case c.all && len(words) > 0:
		return cli.WrongUse("--all upgrades every pod that needs it: leave the pod out, or --all")
	}
	if err := c.when.check(time.Now()); err != nil {
		return err
	}
	if c.all {
		return c.on(upgradeAll)(limited, nil)
	}
	return c.onPod(func(ctx context.Context, c *call) error { return c.upgradePod(ctx, c.pod) })(limited, words)
}

// upgradeAll goes on after a failure, and ends when it is interrupted.
func upgradeAll(ctx context.Context, c *call) error {
	all, err := c.hub.Pods(ctx)
	if err != nil {
		return err
	}
	done, failed, code := 0, 0, cli.Done
	for _, p := range all {
		if !view.NeedsUpgrade(p) || p.DeletionTimestamp != nil || c.namespace != "" && c.namespace != p.Namespace {
			continue
		}
		if ctx.Err() != nil {
			return c.unfinished(ctx, fmt.Sprintf("%d done, %d failed", done, failed), "The other pods are as they were")
		}
		if err := c.upgradePod(ctx, types.NamespacedName{Namespace: p.Namespace, Name: p.Name}); err != nil {
			fmt.Fprintf(c.err, "pod %s/%s: %v\n", p.Namespace, p.Name, err)
			if got := cli.CodeOf(err); failed == 0 {
				code = got
			} else if got != code {
				code = cli.Failed
			}
			failed++
			continue
		}
		done++
	}
	switch {
	case failed > 0:
		return cli.Errorf(code, "%s upgraded or waiting, %d failed: see above", cli.Plural(done, "pod"), failed)
	case c.output == "" && done == 0:
		fmt.Fprintln(c.out, "No pod of this node needs an upgrade.")
	case c.output == "":
		fmt.Fprintln(c.out, cli.Plural(done, "pod")+" upgraded or waiting.")
	}
	return nil
}

// upgradePod pulls the images of a pod's upgrade, and then requests it. With --wait it returns when the
// new pod is Ready and has stayed so for a while.
func (c *call) upgradePod(ctx context.Context, pod types.NamespacedName) error {
	// The hub pulls the images of what is for later. Without the cloud, the pull may end as late as the cloud
	// is back, and the upgrade waits for both.
	pullLater := !c.noPull && !c.when.later() && c.isOffline(ctx)
	if !c.noPull && !c.when.later() && !pullLater {
		if err := c.pullFirst(ctx, pod); err != nil {
			return err
		}
	}
	var before []*corev1.Pod // only the old pod shows what its replacement will be
	var err error
	if c.wait {
		if before, err = c.hub.Pods(ctx); err != nil {
			return err
		}
	}
	w := waiting{began: time.Now()}
	answer, waits, err := c.hub.Send(ctx, http.MethodPost, withQuery(api.UpgradePath(pod.Namespace, pod.Name), c.query(w.began)))
	switch {
	case err != nil:
		return err
	case !c.wait || c.output == "":
		if err := c.say(answer, nil); err != nil {
			return err
		}
	}
	if waits && pullLater {
		if _, err := c.requestPull(ctx, pod); err != nil {
			fmt.Fprintf(c.err, "its images are not pulled ahead: %v\n", err)
		}
	}
	if !c.wait {
		return nil
	}
	w.inPlace = !waits && strings.HasSuffix(answer, api.OfflineInPlace)
	if waits || w.inPlace {
		w.action = api.UpgradeAction
	}
	if w.Replacement, err = view.NewReplacement(before, pod, c.settle); err != nil {
		return err
	}
	return c.waitFor(ctx, &w)
}

func (c *call) isOffline(ctx context.Context) bool {
	state, err := c.hub.Ask(ctx, http.MethodGet, api.Readyz)
	return err == nil && state != fine
}

// pullFirst returns when the images are on the node.
func (c *call) pullFirst(ctx context.Context, pod types.NamespacedName) error {
	if pulls, err := c.requestPull(ctx, pod); err != nil || !pulls {
		return err
	}
	err := c.beside().followPull(ctx, pod)
	if cli.CodeOf(err) == cli.Undone {
		return cli.Errorf(cli.Undone, "%w. The upgrade was not requested", err)
	}
	return err
}

// requestPull returns false for a hub that pulls no images ahead.
func (c *call) requestPull(ctx context.Context, pod types.NamespacedName) (bool, error) {
	answer, err := c.hub.Ask(ctx, http.MethodPost, api.ImagePullPath(pod.Namespace, pod.Name))
	if r, ok := errors.AsType[*hubclient.APIError](err); ok && r.Code == http.StatusNotImplemented {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	fmt.Fprintln(c.beside().out, answer)
	return true, nil
}

// beside is c for what is printed besides the command's own output: with JSON, on stderr.
func (c *call) beside() *call {
	if c.output == "" {
		return c
	}
	beside := *c
	beside.out, beside.output = c.err, ""
	return &beside
}

func (c *call) arrived(s *waiting) error {
	revision, took := view.RevisionOf(s.Pod), s.Ready.Sub(s.began)
	if c.output == "json" {
		if err := cli.PrintJSON(c.out, upgraded{
			Namespace: s.Old.Namespace, Pod: s.Old.Name, Successor: s.Pod.Name,
			Revision: revision, Seconds: took.Round(time.Millisecond).Seconds(), StableSeconds: s.Settle.Seconds(),
		}); err != nil {
			return err
		}
	}
	if revision != s.Target {
		return fmt.Errorf("pod %s/%s is Ready, but of revision %s, not of %s: its app was changed meanwhile", s.Old.Namespace, s.Pod.Name, revision, s.Target)
	}
	if c.output == "" {
		fmt.Fprintf(c.out, "Pod %s/%s of revision %s is Ready, after %s,\nand has stayed so for %v\n", s.Old.Namespace, s.Pod.Name, revision, cli.Brief(took), s.Settle)
	}
	return nil
}
