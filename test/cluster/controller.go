package cluster

import (
	"context"
	"os/exec"

	"github.com/edgehub-io/edgehub/test/cluster/freeport"
)

// startController runs the edgehub controller if one is named. It goes straight
// to the apiserver, as an administrator: what rights it needs at least is tested
// where its manifests are. Its metrics are at ControllerURL()/metrics.
func (c *Cluster) startController(ctx context.Context) error {
	if c.options.ControllerBin == "" {
		return nil
	}
	config, err := c.componentKubeconfig(c.control, "edgehub-controller", identity{name: "edgehub-controller", groups: []string{mastersRole}})
	if err != nil {
		return err
	}
	port, err := freeport.Take()
	if err != nil {
		return err
	}
	url := "http://" + loopback(port)
	c.controller = c.newProcess("edgehub-controller", func() *exec.Cmd {
		return command(c.options.ControllerBin, append([]string{
			"--kubeconfig=" + config, "--leader-elect=false", "--metrics-addr=" + loopback(port), "--health-probe-addr=" + loopback(port),
		}, c.options.ControllerArgs...)...)
	}, func(ctx context.Context) error { return get(ctx, c.http, url+"/readyz") })
	if err := c.controller.Start(ctx); err != nil {
		return err
	}
	c.log.step("%s is up", c.controller.name)
	return nil
}
