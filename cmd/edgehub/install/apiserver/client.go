// Package apiserver reads a node, its lease and its pods from an apiserver, or from a hub in its
// place. edgehub install waits with it. It needs no clientset.
package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/hub/kubeconfig"
)

// Client sends requests to the apiserver, or the hub, that a kubeconfig names.
type Client struct {
	Servers []string
	client  *http.Client
}

// New returns a client with the credentials in a kubeconfig, and what the kubeconfig has. servers, if
// any, replace the server that it names.
func New(file string, servers []string) (*Client, *rest.Config, error) {
	config, err := kubeconfig.LoadREST(file)
	if err != nil {
		return nil, nil, fmt.Errorf("kubeconfig %s: %w", file, err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("kubeconfig %s: %w", file, err)
	}
	if len(servers) == 0 {
		servers = []string{strings.TrimSuffix(config.Host, "/")}
	}
	return &Client{Servers: servers, client: client}, config, nil
}

// get reads an object from the first server that has it.
func (c *Client) get(ctx context.Context, path string, into any) error {
	var errs []error
	for _, server := range c.Servers {
		body, err := Get(ctx, c.client, server+path)
		if err == nil {
			err = json.Unmarshal(body, into)
		}
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Get returns the body of a response, at most 16 MiB. It is an error if the status is not 200, or the
// request takes 5 s.
func Get(ctx context.Context, client *http.Client, address string) ([]byte, error) {
	const timeout, most, mostQuoted = 5 * time.Second, 16 << 20, 500
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, most))
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %.*s", address, res.Status, mostQuoted, bytes.TrimSpace(body))
	}
	return body, err
}

// Node returns the node of this name.
func (c *Client) Node(ctx context.Context, name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	return node, c.get(ctx, "/api/v1/nodes/"+name, node)
}

// Pods returns the pods of a node, by the only query that a node may make.
func (c *Client) Pods(ctx context.Context, node string) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	err := c.get(ctx, "/api/v1/pods?fieldSelector=spec.nodeName%3D"+url.QueryEscape(node), list)
	return list.Items, err
}

// APIServerIPs returns the cluster IPs of the apiserver's own Service.
func (c *Client) APIServerIPs(ctx context.Context) ([]net.IP, error) {
	service := &corev1.Service{}
	if err := c.get(ctx, "/api/v1/namespaces/default/services/kubernetes", service); err != nil {
		return nil, err
	}
	var ips []net.IP
	for _, text := range service.Spec.ClusterIPs {
		if ip := net.ParseIP(text); ip != nil {
			ips = append(ips, ip)
		}
	}
	return ips, nil
}

// Ready returns nil if the node is Ready, as reported by kubelet after since. Kubelet sets the times in
// the node and its lease by this machine's clock.
func (c *Client) Ready(ctx context.Context, name string, since time.Time) error {
	node, err := c.Node(ctx, name)
	if err != nil {
		return err
	}
	var lease struct {
		Spec struct {
			RenewTime time.Time `json:"renewTime"`
		} `json:"spec"`
	}
	if err := c.get(ctx, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/"+name, &lease); err != nil {
		return err
	}
	if !lease.Spec.RenewTime.After(since) {
		return fmt.Errorf("the lease of node %s was last renewed at %s, before kubelet's restart", name, lease.Spec.RenewTime.Format(time.RFC3339))
	}
	switch ready := ReadyCondition(node); {
	case ready.Status == "":
		return fmt.Errorf("node %s has no condition Ready", name)
	case ready.Status != corev1.ConditionTrue:
		return fmt.Errorf("node %s is not Ready: %s", name, ready.Message)
	case ready.LastHeartbeatTime.Time.Before(since.Truncate(time.Second)): // it has whole seconds
		return fmt.Errorf("node %s has not told its status since kubelet's restart", name)
	}
	return nil
}

// ReadyCondition returns the node's condition Ready, or the zero condition if it has none.
func ReadyCondition(node *corev1.Node) corev1.NodeCondition {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	return corev1.NodeCondition{}
}
