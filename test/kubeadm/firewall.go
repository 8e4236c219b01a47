package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// refuseInput has the edge node's firewall refuse what comes in and was not asked for, as
// RHEL's rules, firewalld and ufw do, now and after each boot. An install is refused then, and what it prints lets pods in.
func (c *Cluster) refuseInput(ctx context.Context, say Say) error {
	m := c.machines[edge]
	if err := c.put(m, "netfilter-persistent.service", "/etc/systemd/system/netfilter-persistent.service"); err != nil {
		return err
	}
	if _, err := m.Run(ctx, "systemctl", "enable", "--now", "netfilter-persistent.service"); err != nil {
		return err
	}
	before, err := c.traces(ctx)
	if err != nil {
		return err
	}
	out, err := m.Run(ctx, "/root/edgehub", "install")
	if err == nil {
		return errors.New("edgehub install went on, though no pod would reach the hub")
	}
	out += err.Error()
	for _, want := range []string{
		`connection refused, though the hub listens`, `"-A INPUT -j REJECT --reject-with icmp-port-unreachable"`, "A reboot does not keep what these add", "everything was put back as it was",
	} {
		if !strings.Contains(out, want) {
			return fmt.Errorf("edgehub install does not say %q: %s", want, out)
		}
	}
	after, err := c.traces(ctx)
	if err == nil && after != before {
		err = fmt.Errorf("there was:\n%sand is, after an install that was refused:\n%s", before, after)
	}
	if err != nil {
		return err
	}
	say("edge$ edgehub install     # refused, and nothing is changed: the firewall keeps pods from the hub")
	return c.admitPods(ctx, say, out)
}

// admitPods runs the command that a refused install has printed, now and after each boot.
func (c *Cluster) admitPods(ctx context.Context, say Say, printed string) error {
	m := c.machines[edge]
	i := strings.Index(printed, "iptables -I INPUT -s ")
	if i < 0 {
		return fmt.Errorf("edgehub install prints no command of iptables: %s", printed)
	}
	command, _, _ := strings.Cut(printed[i:], "\n")
	if err := m.Write("/etc/systemd/system/netfilter-persistent.service.d/pods.conf", "[Service]\nExecStartPost=/bin/sh -c '"+command+"'\n", 0o644); err != nil {
		return err
	}
	say("edge$ %s", command)
	_, err := m.Run(ctx, "sh", "-ec", "systemctl daemon-reload; "+command)
	return err
}

// traces are what an install leaves behind, or changes: its files, its interface, the
// firewall's rules for input, and when kubelet was started.
func (c *Cluster) traces(ctx context.Context) (string, error) {
	return c.machines[edge].Run(ctx, "sh", "-ec", `ls /etc/systemd/system /etc/systemd/system/*.wants /etc/kubernetes /usr/local/bin /var/lib
ls /sys/class/net | grep edgehub || true
iptables -S INPUT; ip6tables -S INPUT
systemctl show kubelet.service --property=ExecMainStartTimestampMonotonic`)
}

// uninstall removes the hub after the story.
func (c *Cluster) uninstall(ctx context.Context, say Say) error {
	m := c.machines[edge]
	out, err := m.Run(ctx, "edgehub", "install")
	if err == nil && !strings.Contains(out, "nothing was changed") {
		err = fmt.Errorf("another install: %s", out)
	}
	if err != nil {
		return err
	}
	out, err = m.Run(ctx, "edgehub", "uninstall")
	if err == nil || !strings.Contains(out, "kubectl delete pod --namespace=kube-system kube-proxy-") {
		return errors.New("edgehub uninstall does not leave the hub to pods that use it: " + out)
	}
	say("edge$ edgehub uninstall     # kubelet uses the apiserver, and the hub stays for the pods that use it")
	if err := c.deletePods(ctx, say); err != nil {
		return err
	}
	if err := c.eventually(ctx, say, "their successors are Ready", func(ctx context.Context) error {
		return c.podsReady(ctx, everyProgram...)
	}); err != nil {
		return err
	}
	if _, err := m.Run(ctx, "edgehub", "uninstall"); err != nil {
		return err
	}
	out, err = m.Run(ctx, "sh", "-c", "iptables-save; ip6tables-save; ls /etc/systemd/system /etc/systemd/system/*.wants")
	if err != nil {
		return err
	}
	if strings.Contains(strings.ToLower(out), "edgehub") {
		return fmt.Errorf("edgehub uninstall leaves something: %s", out)
	}
	say("edge$ edgehub uninstall     # and nothing of it is left")
	if err := c.podsReady(ctx, everyProgram...); err != nil {
		return err
	}
	return c.eventually(ctx, say, "kube-proxy leads nothing to the hub", func(ctx context.Context) error {
		rules, err := m.Run(ctx, "iptables-save", "--table=nat")
		if err == nil && (strings.Contains(rules, "169.254.2.1") || !strings.Contains(rules, "--to-destination "+controlIP+":6443")) {
			err = errors.New("its rules are:\n" + rules)
		}
		return err
	})
}
