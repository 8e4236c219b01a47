package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/test/cluster/freeport"
)

// controllerAccount is the controller's with the product's manifests.
const controllerAccount = "system:serviceaccount:edgehub-system:edgehub-controller"

// AsController returns an administrator's config that writes as the controller's account, for a test that does by hand what only
// the controller may do: the admission policies go by that name.
func AsController(admin *rest.Config) *rest.Config {
	config := rest.CopyConfig(admin)
	config.Impersonate = rest.ImpersonationConfig{UserName: controllerAccount, Groups: []string{mastersRole}}
	return config
}

// startController runs the edgehub controller if one is named. It goes straight
// to the apiserver, with the rights of its manifests, or as an administrator. Its metrics are at
// ControllerURL()/metrics.
func (c *Cluster) startController(ctx context.Context) error {
	if c.options.ControllerBin == "" {
		return nil
	}
	who := identity{name: "edgehub-controller", groups: []string{mastersRole}}
	if c.options.ControllerDeploy != "" {
		if err := c.applyRights(ctx); err != nil {
			return fmt.Errorf("apply %s: %w", c.options.ControllerDeploy, err)
		}
		who = identity{name: controllerAccount}
	}
	config, err := c.componentKubeconfig(c.control, "edgehub-controller", who)
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

// applyRights applies all of the controller's manifests but its Deployment, with those for admission, and returns when the
// policy is in force that leaves dry runs of its right to create pods: a controller that has created one first does not use
// that right for an hour.
func (c *Cluster) applyRights(ctx context.Context) error {
	deploy := c.options.ControllerDeploy
	manifests, err := c.Kubectl(ctx, "kustomize", deploy)
	if err != nil {
		return err
	}
	all := slices.DeleteFunc(strings.Split(manifests, "\n---\n"), func(one string) bool { return strings.Contains("\n"+one, "\nkind: Deployment\n") })
	rights, probe := c.path("controller-rights.yaml"), c.path("controller-probe.yaml")
	if err := errors.Join(
		os.WriteFile(rights, []byte(strings.Join(all, "\n---\n")), 0o600),
		os.WriteFile(probe, []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"probe","namespace":"default"},
"spec":{"schedulingGates":[{"name":"edgehub.io/never"}],"containers":[{"name":"none","image":"none.invalid/none"}]}}`), 0o600)); err != nil {
		return err
	}
	if _, err := c.Kubectl(ctx, "apply", "-f", rights); err != nil {
		return err
	}
	if _, err := c.Kubectl(ctx, "apply", "-k", filepath.Join(deploy, "admission")); err != nil {
		return err
	}
	return poll(ctx, func(ctx context.Context) error {
		_, err := c.Kubectl(ctx, "create", "-f", probe, "--as="+controllerAccount)
		switch {
		case err == nil:
			_, err = c.Kubectl(ctx, "delete", "-f", probe)
			return errors.Join(errors.New("the controller can create pods"), err)
		case strings.Contains(err.Error(), "denied request"):
			return nil
		default:
			return err
		}
	})
}
