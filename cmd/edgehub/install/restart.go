package install

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/edgehub-io/edgehub/cmd/edgehub/install/apiserver"
	"github.com/edgehub-io/edgehub/cmd/edgehub/install/kubelet"
	"github.com/edgehub-io/edgehub/cmd/edgehub/install/systemctl"
)

// maxRestarts is the number of restarts after which a new hub counts as failed.
const maxRestarts = 3

// restartHub restarts the hub and waits until the new process is ready; with an empty readyURL, until
// it runs. The sockets stay open in systemd meanwhile.
func restartHub(ctx context.Context, wait time.Duration, readyURL string) error {
	before, err := systemctl.MainPID(ctx, hubService)
	if err != nil {
		return err
	}
	_, _ = systemctl.Run(ctx, "reset-failed", hubService) // also resets NRestarts
	if _, err := systemctl.Run(ctx, "restart", "--no-block", hubService); err != nil {
		return err
	}
	err = waitFor(ctx, wait, "the hub does not become ready", func(ctx context.Context) error {
		values, err := systemctl.Properties(ctx, hubService, "ActiveState", "SubState", "MainPID", "NRestarts")
		if err != nil {
			return err
		}
		if n, _ := strconv.Atoi(values["NRestarts"]); n >= maxRestarts {
			return &permanentError{fmt.Errorf("it has ended by itself %d times", n)}
		}
		if values["ActiveState"] != "active" || values["MainPID"] == strconv.Itoa(before) {
			return fmt.Errorf("edgehub.service is %s (%s)", values["ActiveState"], values["SubState"])
		}
		if readyURL == "" {
			return nil
		}
		_, err = apiserver.Get(ctx, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, readyURL)
		return err
	})
	if err != nil {
		return fmt.Errorf("%w%s", err, systemctl.Journal(context.WithoutCancel(ctx), hubService))
	}
	return nil
}

// readOwnNode reads the node through the hub, as kubelet does. A hub that is offline may have one of another
// cluster, with the same name.
func (p *plan) readOwnNode(ctx context.Context) error {
	way, _, err := apiserver.New(kubeletKubeconfig, nil)
	if err != nil {
		return err
	}
	node, err := way.Node(ctx, p.options.NodeName)
	if err == nil && p.uid != "" && node.UID != p.uid {
		err = fmt.Errorf("the hub has a node %s with the UID %s, and the apiserver one with %s", p.options.NodeName, node.UID, p.uid)
	}
	return err
}

// restartKubelet records a restart of kubelet, restarts it, and waits until the node is Ready again. If
// kubeconfig is not empty, kubelet must have been started with it. If c is nil, restartKubelet does not
// wait.
func (j *journal) restartKubelet(ctx context.Context, c *apiserver.Client, name string, wait time.Duration, kubeconfig string) error {
	if err := j.noteKubelet(); err != nil {
		return err
	}
	since := time.Now()
	if _, err := systemctl.Run(ctx, "restart", kubeletService); err != nil || c == nil {
		return err
	}
	err := waitFor(ctx, wait, "node "+name+" does not become Ready", func(ctx context.Context) error {
		k, err := kubelet.Inspect(ctx)
		if err != nil {
			return err
		}
		if kubeconfig != "" && k.Flags["kubeconfig"] != kubeconfig {
			return &permanentError{fmt.Errorf("kubelet was started with --kubeconfig=%s in spite of %s: another drop-in wins over it, see systemctl cat kubelet", k.Flags["kubeconfig"], dropInFile)}
		}
		return c.Ready(ctx, name, since)
	})
	if err != nil {
		return fmt.Errorf("%w%s", err, systemctl.Journal(context.WithoutCancel(ctx), kubeletService))
	}
	return nil
}

// noteKubelet records that the change affects kubelet: a rollback restarts it.
func (j *journal) noteKubelet() error {
	if j.Change == nil || j.Change.Kubelet {
		return nil
	}
	j.Change.Kubelet = true
	return j.save()
}

// permanentError is an error that waiting does not resolve.
type permanentError struct{ error }

const pollInterval = 200 * time.Millisecond

// waitFor calls check until it succeeds, wait has passed, or ctx ends. Its error wraps the last one of
// check.
func waitFor(ctx context.Context, wait time.Duration, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, fmt.Errorf("%v have passed", wait))
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if final, ok := errors.AsType[*permanentError](err); ok {
			return fmt.Errorf("%s: %w", what, final.error)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w (%w)", what, err, context.Cause(ctx))
		case <-time.After(pollInterval):
		}
	}
}
