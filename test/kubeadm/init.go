package kubeadm

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/edgehub-io/edgehub/test/cluster"
)

const adminFile = "/etc/kubernetes/admin.conf"

// Init makes the control plane: kubeadm init, and flannel.
func (c *Cluster) Init(ctx context.Context) error {
	m := c.machines[control]
	text, err := render("init.yaml", c.values())
	if err == nil {
		err = m.Write("/root/init.yaml", text, 0o600)
	}
	if err != nil {
		return err
	}
	if _, err := m.Run(ctx, "kubeadm", "init", "--config=/root/init.yaml"); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", m.Path(adminFile))
	if err != nil {
		return err
	}
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if c.controller, err = kubernetes.NewForConfig(cluster.AsController(config)); err != nil {
		return err
	}
	return c.apply(ctx, "flannel.yaml")
}

// apply creates what is in one of the files.
func (c *Cluster) apply(ctx context.Context, name string) error {
	err := c.put(c.machines[control], name, "/root/"+name)
	if err == nil {
		_, err = c.Kubectl(ctx, "apply", "--filename=/root/"+name)
	}
	return err
}

// Kubectl runs kubectl on the control node as the cluster's administrator.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.machines[control].Run(ctx, append([]string{"kubectl", "--kubeconfig=" + adminFile}, args...)...)
}

// Join makes the edge machine a node, with a new bootstrap token.
func (c *Cluster) Join(ctx context.Context) error {
	out, err := c.machines[control].Run(ctx, "kubeadm", "token", "create")
	if err != nil {
		return err
	}
	lines := strings.Fields(out)
	v := c.values()
	v.Token = lines[len(lines)-1] // warnings come first
	if v.CAHash, err = caHash(c.machines[control].Path("/etc/kubernetes/pki/ca.crt")); err != nil {
		return err
	}
	m := c.machines[edge]
	text, err := render("join.yaml", v)
	if err == nil {
		err = m.Write("/root/join.yaml", text, 0o600)
	}
	if err != nil {
		return err
	}
	join := []string{"kubeadm", "join", "--config=/root/join.yaml"}
	if c.options.Proxy {
		join = append([]string{"env", "HTTPS_PROXY=" + siteProxy}, join...)
	}
	_, err = m.Run(ctx, join...)
	return err
}

// caHash is what kubeadm calls the discovery token CA certificate hash.
func caHash(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return "", errors.New(file + " has no certificate")
	}
	ca, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(ca.RawSubjectPublicKeyInfo)), nil
}
