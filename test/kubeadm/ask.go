package kubeadm

import (
	"context"
	"fmt"
	"net"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// get is what curl on the edge node gets.
func (c *Cluster) get(ctx context.Context, url string) (string, error) {
	// As kubelet does, if it is the hub.
	const cert = "/var/lib/kubelet/pki/kubelet-client-current.pem"
	return c.machines[edge].Run(ctx, "curl", "--silent", "--show-error", "--fail-with-body", "--max-time", "5",
		"--cacert", "/var/lib/edgehub/pki/serving.crt", "--cert", cert, "--key", cert, url)
}

// podIP is the address of one of the edge node's pods.
func (c *Cluster) podIP(ctx context.Context, name string) (string, error) {
	list := c.pods
	if !c.booted.IsZero() {
		list = c.podsOffline
	}
	pods, err := list(ctx)
	if err != nil {
		return "", err
	}
	pod, err := podOf(pods, name)
	if err != nil {
		return "", err
	}
	return pod.Status.PodIP, nil
}

// serviceAnswers has a pod of the edge node ask the Service of its web server by name: that
// takes CoreDNS, kube-proxy and the pod network.
func (c *Cluster) serviceAnswers(ctx context.Context, say Say) error {
	return c.eventually(ctx, say, "a pod asks http://web.default.svc.cluster.local, and its own node's pod answers", func(ctx context.Context) error {
		web, err := c.podIP(ctx, "web")
		if err != nil {
			return err
		}
		return c.askService(ctx, web)
	})
}

// askService has the web server at an address ask.
func (c *Cluster) askService(ctx context.Context, web string) error {
	answer, err := c.get(ctx, "http://"+net.JoinHostPort(web, "8080")+"/ask?url=http://web.default.svc.cluster.local/hostname")
	if err == nil && !strings.HasPrefix(answer, "web-") {
		err = fmt.Errorf("it answers %q", answer)
	}
	return err
}

// podNetworkLeads returns an error unless the cloud has edge's address from flannel, and control
// reaches a web server of edge's by it.
func (c *Cluster) podNetworkLeads(ctx context.Context, web string) error {
	node, err := c.client.CoreV1().Nodes().Get(ctx, edge, metav1.GetOptions{})
	if err != nil {
		return err
	}
	want := edgeIP
	if c.options.Move {
		want = movedIP
	}
	if got := node.Annotations["flannel.alpha.coreos.com/public-ip"]; got != want {
		return fmt.Errorf("by flannel's annotation, edge is at %s, not at %s", got, want)
	}
	_, err = c.machines[control].Run(ctx, "curl", "--silent", "--show-error", "--fail-with-body", "--max-time", "5", "http://"+net.JoinHostPort(web, "8080")+"/hostname")
	return err
}

func (c *Cluster) informerAnswers(ctx context.Context, path string, words ...string) error {
	ip, err := c.podIP(ctx, "informer")
	if err != nil {
		return err
	}
	answer, err := c.get(ctx, "http://"+net.JoinHostPort(ip, "8080")+path)
	for _, word := range words {
		if err == nil && !strings.Contains(answer, word) {
			err = fmt.Errorf("%q is not in what it answers: %s", word, answer)
		}
	}
	return err
}
