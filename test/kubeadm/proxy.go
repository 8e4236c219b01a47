package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

const (
	// siteProxy is the proxy of Options.Proxy, on the control machine: outside of the node.
	siteProxy = "http://" + controlIP + ":3128"
	// deadProxy is one that nobody answers for.
	deadProxy = "http://192.0.2.80:3128"
)

// goByProxy makes the edge node's site one that hosts leave by a proxy only: the node's packet filter refuses what
// its own programs send to the apiserver, and kubelet's unit has the proxy. NO_PROXY has the networks of Services
// and pods, and the filter lets these through, as where a site routes them by itself, over a VPN, say. So pods with
// in-cluster configuration, flannel among them, reach the apiserver by its Service until they are behind the hub, as
// everywhere; kubelet, kubeadm and kube-proxy, whose kubeconfigs have the apiserver's own address, use the proxy.
func (c *Cluster) goByProxy(ctx context.Context, say Say) error {
	if _, err := exec.LookPath("tinyproxy"); err != nil {
		return fmt.Errorf("find tinyproxy (Debian's package tinyproxy-bin): %w", err)
	}
	there, here := c.machines[control], c.machines[edge]
	if err := errors.Join(
		c.put(there, "tinyproxy.conf", "/etc/tinyproxy.conf"),
		c.put(there, "tinyproxy.service", "/etc/systemd/system/tinyproxy.service"),
		c.put(here, "egress.service", "/etc/systemd/system/egress.service"),
		c.put(here, "kubelet-proxy.conf", "/etc/systemd/system/kubelet.service.d/10-proxy.conf"),
	); err != nil {
		return err
	}
	if _, err := there.Run(ctx, "systemctl", "start", "tinyproxy.service"); err != nil {
		return err
	}
	if _, err := here.Run(ctx, "sh", "-ec", "systemctl daemon-reload; systemctl enable --now egress.service"); err != nil {
		return err
	}
	const livez = "https://" + controlIP + ":6443/livez"
	if out, err := here.Run(ctx, "curl", "--silent", "--show-error", "--insecure", "--max-time", "5", livez); err == nil || !strings.Contains(out, "Couldn't connect") {
		return fmt.Errorf("edge is not kept from the apiserver: %s %w", out, err)
	}
	return c.eventually(ctx, say, "edge reaches the apiserver by the site's proxy only, "+siteProxy, func(ctx context.Context) error {
		_, err := here.Run(ctx, "curl", "--silent", "--show-error", "--fail-with-body", "--insecure", "--max-time", "5", "--proxy", siteProxy, livez)
		return err
	})
}

// proxyKubeProxy gives kube-proxy a proxy, as kubeadm does where it is started with one.
func (c *Cluster) proxyKubeProxy(ctx context.Context) error {
	proxy, except := deadProxy, "10.96.0.0/12,"+controlIP
	if c.options.Proxy {
		proxy, except = siteProxy, "10.96.0.0/12,"+podNetwork
	}
	_, err := c.Kubectl(ctx, "--namespace=kube-system", "set", "env", "daemonset/kube-proxy", "HTTPS_PROXY="+proxy, "NO_PROXY="+except)
	return err
}

// loseProxy ends the proxy while the link is up, and starts it again: the hub takes that for an outage.
func (c *Cluster) loseProxy(ctx context.Context, say Say) error {
	for _, turn := range []struct{ word, status, server string }{
		{"kill --signal=KILL", "offline", "down"},
		{"start", "online", "up"},
	} {
		command := "systemctl " + turn.word + " tinyproxy.service"
		if _, err := c.machines[control].Run(ctx, "sh", "-c", command); err != nil {
			return err
		}
		say("control$ %s     # the site's proxy; the link is up", command)
		if err := c.hubIs(ctx, say, turn.status); err != nil {
			return err
		}
		if err := c.statusHas(ctx, say, turn.server); err != nil {
			return err
		}
		if err := c.serviceAnswers(ctx, say); err != nil {
			return err
		}
	}
	return nil
}

// statusHas runs edgehubctl status on the edge node until the apiserver is in a state: up, or down.
func (c *Cluster) statusHas(ctx context.Context, say Say, state string) error {
	return c.eventually(ctx, say, "edgehubctl status: the apiserver is "+state+", and no pod uses a proxy for the hub", func(ctx context.Context) error {
		out, err := c.machines[edge].Run(ctx, "/root/edgehubctl", "status", "-o", "wide") // a line for each apiserver
		if err == nil && (!strings.Contains(out, controlIP+":6443  "+state+" for ") || strings.Contains(out, "use a proxy")) {
			err = errors.New(out)
		}
		return err
	})
}
