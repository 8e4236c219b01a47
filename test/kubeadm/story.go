package kubeadm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// patience is how long a step waits for what others do.
const patience = 10 * time.Minute

// Say writes a line of a step's.
type Say func(format string, args ...any)

// Step is a part of the story. Each begins where the one before has ended.
type Step struct {
	Name string
	// Run returns an error unless the step comes true.
	Run func(c *Cluster, ctx context.Context, say Say) error
}

// Story returns all steps. The first needs a cluster that was just started.
func Story() []Step {
	return []Step{
		{"kubeadm init makes a control plane, and flannel its pod network", (*Cluster).makeControlPlane},
		{"kubeadm join with a bootstrap token makes a machine the node edge", (*Cluster).makeNode},
		{"programs run on both nodes; those of edge talk to the apiserver", (*Cluster).runPods},
		{"edgehub install switches kubelet to the hub, and leaves pods alone", (*Cluster).install},
		{"pods that start from now on talk to the hub, with their own tokens", (*Cluster).restartPods},
		{"an image is pulled ahead, from where containerd's own configuration leads", (*Cluster).prepull},
		{"the uplink is cut: what was sent is lost, and nobody answers", (*Cluster).cutUplink},
		{"the node loses power, and boots without the cloud", (*Cluster).losePower},
		{"its pods are Running and Ready", (*Cluster).podsComeBack},
		{"a Service's name resolves, its ClusterIP answers, and so does kubernetes.default.svc", (*Cluster).servicesAnswer},
		{"a program with an informer has the cluster's state", (*Cluster).informerSynced},
		{"the uplink is mended: the cloud sees the node, and no pod is started anew", (*Cluster).mendUplink},
	}
}

// Tell runs the story, and writes what happens with the seconds since its beginning.
func (c *Cluster) Tell(ctx context.Context, out io.Writer) error {
	began := time.Now()
	for _, step := range Story() {
		fmt.Fprintf(out, "\n%4.0f s  %s\n", time.Since(began).Seconds(), step.Name)
		say := func(format string, args ...any) {
			for line := range strings.Lines(fmt.Sprintf(format, args...)) {
				fmt.Fprintf(out, "        %s\n", strings.TrimRight(line, "\n"))
			}
		}
		if err := step.Run(c, ctx, say); err != nil {
			return fmt.Errorf("%s: %w", step.Name, err)
		}
	}
	return nil
}

func (c *Cluster) makeControlPlane(ctx context.Context, say Say) error {
	began := time.Now()
	if err := c.Init(ctx); err != nil {
		return err
	}
	say("control$ kubeadm init --config=init.yaml     # %s", since(began))
	return c.eventually(ctx, say, "node control is Ready", func(ctx context.Context) error { return c.nodeReady(ctx, control) })
}

func (c *Cluster) makeNode(ctx context.Context, say Say) error {
	if err := c.proxyKubeProxy(ctx); err != nil {
		return err
	}
	if c.options.Proxy {
		if err := c.goByProxy(ctx, say); err != nil {
			return err
		}
	}
	began := time.Now()
	if err := c.Join(ctx); err != nil {
		return err
	}
	say("edge$ kubeadm join --config=join.yaml     # %s", since(began))
	return c.eventually(ctx, say, "node edge is Ready, with kube-proxy and flannel", func(ctx context.Context) error {
		return errors.Join(c.nodeReady(ctx, edge), c.podsReady(ctx, "kube-proxy", "kube-flannel-ds"))
	})
}

func (c *Cluster) runPods(ctx context.Context, say Say) error {
	if err := c.apply(ctx, "demo.yaml"); err != nil {
		return err
	}
	// One CoreDNS on each node, for the pods of that node.
	for _, args := range [][]string{
		{"patch", "service", "kube-dns", `--patch={"spec": {"internalTrafficPolicy": "Local"}}`},
		{"patch", "deployment", "coredns", "--patch=" + onePerNode},
	} {
		if _, err := c.Kubectl(ctx, append([]string{"--namespace=kube-system"}, args...)...); err != nil {
			return err
		}
	}
	if err := c.eventually(ctx, say, "pods on edge are Ready", func(ctx context.Context) error {
		return c.podsReady(ctx, everyProgram...)
	}); err != nil {
		return err
	}
	if err := c.serviceAnswers(ctx, say); err != nil {
		return err
	}
	flows, err := c.flows(ctx)
	if err != nil {
		return err
	}
	say("connections from edge to the apiserver: %s", flows)
	if flows.pods == 0 {
		return errors.New("no pod is connected to the apiserver: this would show nothing later")
	}
	return nil
}

const onePerNode = `{"spec": {"template": {"spec": {"affinity": {"podAntiAffinity": {
  "preferredDuringSchedulingIgnoredDuringExecution": null,
  "requiredDuringSchedulingIgnoredDuringExecution": [
    {"labelSelector": {"matchLabels": {"k8s-app": "kube-dns"}}, "topologyKey": "kubernetes.io/hostname"}]}}}}}}`

func (c *Cluster) install(ctx context.Context, say Say) error {
	m := c.machines[edge]
	for name, path := range map[string]string{"edgehub": c.options.Hub, "edgehubctl": filepath.Join(filepath.Dir(c.options.Hub), "edgehubctl")} {
		program, err := os.ReadFile(path)
		if err == nil {
			err = m.Write("/root/"+name, string(program), 0o755)
		}
		if err != nil {
			return fmt.Errorf("bring %s to the node: %w", name, err)
		}
	}
	command := []string{"/root/edgehub", "install"}
	if c.options.Firewall {
		if err := c.refuseInput(ctx, say); err != nil {
			return err
		}
	}
	command = append(command, "--", "--image-pull-min-free=1") // percent: the disk is the host's, and may be fuller
	if c.options.ClusterIP {
		command = append(command, "--cluster-ip=always")
	}
	began := time.Now()
	out, err := m.Run(ctx, command...)
	if err != nil {
		return err
	}
	say("edge$ edgehub %s     # %s", strings.Join(command[1:], " "), since(began))
	lines := strings.Split(strings.TrimSpace(out), "\n")
	say("%s", lines[len(lines)-1])
	if err := c.hubIs(ctx, say, "online"); err != nil {
		return err
	}
	return c.clusterIPWaits(ctx, say)
}

func (c *Cluster) restartPods(ctx context.Context, say Say) error {
	if err := c.deletePods(ctx, say); err != nil {
		return err
	}
	if err := c.eventually(ctx, say, "the pods' successors are Ready", func(ctx context.Context) error {
		return c.podsReady(ctx, everyProgram...)
	}); err != nil {
		return err
	}
	if err := c.serviceAnswers(ctx, say); err != nil {
		return err
	}
	if err := c.eventually(ctx, nil, "nobody but the hub talks to the apiserver", func(ctx context.Context) error {
		flows, err := c.flows(ctx)
		if err == nil && (flows.pods > 0 || flows.programs > 0 || flows.hub == 0) {
			err = errors.New(flows.String())
		}
		return err
	}); err != nil {
		return err
	}
	flows, err := c.flows(ctx)
	if err != nil {
		return err
	}
	say("connections from edge to the apiserver: %s", flows)
	if err := c.clusterIPLeads(ctx, say); err != nil {
		return err
	}
	if err := c.everyPodUsesHub(ctx, say); err != nil {
		return err
	}
	if err := c.eventually(ctx, say, "pods that have a proxy use the hub, and not the proxy, by its /debug/cache", c.proxiesAreUnused); err != nil {
		return err
	}
	return c.eventually(ctx, say, "who reads through the hub, by its /debug/cache", func(ctx context.Context) error {
		users, err := c.hubUsers(ctx)
		if err != nil {
			return err
		}
		for _, name := range []string{"node", "kube-proxy", "flannel", "coredns", "informer"} {
			if len(users[name]) == 0 {
				return fmt.Errorf("the hub has nothing that %s has read", name)
			}
		}
		for _, line := range users.lines() {
			say("  %s", line)
		}
		return nil
	})
}

func (c *Cluster) cutUplink(ctx context.Context, say Say) error {
	if c.options.Proxy {
		if err := c.loseProxy(ctx, say); err != nil {
			return err
		}
	}
	if err := c.clusterIPAnswersAcross(ctx, say, func() error {
		if err := c.machines[edge].Cut(ctx); err != nil {
			return err
		}
		return c.hubIs(ctx, say, "offline")
	}); err != nil {
		return err
	}
	return c.serviceAnswers(ctx, say)
}

func (c *Cluster) losePower(ctx context.Context, say Say) error {
	m := c.machines[edge]
	began := time.Now()
	if err := m.PowerOff(); err != nil {
		return err
	}
	say("all of edge's processes were killed     # %s", since(began))
	if c.options.Move {
		m.Move(movedIP + prefix)
		say("it has another address from now on, %s", movedIP)
	}
	began = time.Now()
	c.booted = began.Truncate(time.Second) // as exact as pods' times
	if err := m.PowerOn(ctx); err != nil {
		return err
	}
	say("systemd has booted     # %s", since(began))
	if err := c.writePID(edge, m); err != nil {
		return err
	}
	return c.hubIs(ctx, say, "offline")
}

func (c *Cluster) podsComeBack(ctx context.Context, say Say) error {
	if err := c.eventually(ctx, say, "kube-proxy, flannel, CoreDNS, web and informer are Running and Ready", func(ctx context.Context) error {
		return c.podsReadyOffline(ctx, everyProgram...)
	}); err != nil {
		return err
	}
	if err := c.sayElapsed(ctx, say, "all pods Ready"); err != nil {
		return err
	}
	return c.everyPodUsesHub(ctx, say)
}

func (c *Cluster) servicesAnswer(ctx context.Context, say Say) error {
	if err := c.serviceAnswers(ctx, say); err != nil {
		return err
	}
	if err := c.sayElapsed(ctx, say, "the Service's first answer"); err != nil {
		return err
	}
	return c.eventually(ctx, say, "https://kubernetes.default.svc answers from the hub's cache", func(ctx context.Context) error {
		return c.informerAnswers(ctx, "/kubernetes", `"kind":"ServiceList"`)
	})
}

func (c *Cluster) sayElapsed(ctx context.Context, say Say, what string) error {
	elapsed, err := c.sinceKubelet(ctx)
	if err == nil {
		say("from kubelet's start to %s: %s", what, elapsed.Round(100*time.Millisecond))
	}
	return err
}

func (c *Cluster) informerSynced(ctx context.Context, say Say) error {
	return c.eventually(ctx, say, "it knows the Services default/web and kube-system/kube-dns", func(ctx context.Context) error {
		return c.informerAnswers(ctx, "/services", "default/web", "kube-system/kube-dns")
	})
}

func (c *Cluster) mendUplink(ctx context.Context, say Say) error {
	before, err := c.containersOffline(ctx)
	if err != nil {
		return err
	}
	web, err := c.podIP(ctx, "web") // which the cloud does not know yet
	if err != nil {
		return err
	}
	if err := c.clusterIPAnswersAcross(ctx, say, func() error {
		if err := c.machines[edge].Mend(ctx); err != nil {
			return err
		}
		return c.hubIs(ctx, say, "online")
	}); err != nil {
		return err
	}
	if err := c.eventually(ctx, say, "node edge is Ready in the cloud's eyes, and its pods are", func(ctx context.Context) error {
		return errors.Join(c.nodeReady(ctx, edge), c.podsReady(ctx, everyProgram...))
	}); err != nil {
		return err
	}
	var missed error // of the Service's answers meanwhile
	if err := c.eventually(ctx, say, "the cloud knows the containers that were started meanwhile, and no others", func(ctx context.Context) error {
		missed = cmp.Or(missed, c.askService(ctx, web))
		now, err := c.containers(ctx)
		if err == nil && now != before {
			err = fmt.Errorf("containers were:\n%sand are:\n%s", before, now)
		}
		return err
	}); err != nil {
		return err
	}
	if missed != nil {
		return fmt.Errorf("the Service did not answer while the cloud came back: %w", missed)
	}
	if err := c.eventually(ctx, say, "a program on control reaches edge's pod, where flannel says that edge is", func(ctx context.Context) error {
		return c.podNetworkLeads(ctx, web)
	}); err != nil {
		return err
	}
	if err := c.clusterIPLeads(ctx, say); err != nil {
		return err
	}
	return c.serviceAnswers(ctx, say)
}
