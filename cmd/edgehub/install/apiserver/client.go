// Package apiserver asks an apiserver, or a hub in its place, for a node and its lease. It
// is what edgehub install waits with, and needs no clientset.
package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Timeout is the timeout of one request to an apiserver or a hub.
const Timeout = 5 * time.Second

// Client sends requests to the apiserver, or the hub, that a kubeconfig names.
type Client struct {
	Servers []string
	client  *http.Client
}

// New reads a kubeconfig; servers, if any, replace the one that it names.
func New(kubeconfig string, servers []string) (*Client, *rest.Config, error) {
	file, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	if err := clientcmd.ResolveLocalPaths(file); err != nil {
		return nil, nil, err
	}
	config, err := clientcmd.NewDefaultClientConfig(*file, nil).ClientConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	if len(servers) == 0 {
		servers = []string{strings.TrimSuffix(config.Host, "/")}
	}
	return &Client{Servers: servers, client: client}, config, nil
}

// get tries the servers in turn until one answers.
func (c *Client) get(ctx context.Context, path string, into any) error {
	var errs []error
	for _, server := range c.Servers {
		err := c.ask(ctx, server+path, into)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (c *Client) ask(ctx context.Context, url string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	res, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	const most = 16 << 20
	body, err := io.ReadAll(io.LimitReader(res.Body, most))
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %.300s", url, res.Status, body)
	}
	return json.Unmarshal(body, into)
}

// Node returns the node of this name.
func (c *Client) Node(ctx context.Context, name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	return node, c.get(ctx, "/api/v1/nodes/"+name, node)
}

// Ready returns nil if the node is Ready and kubelet has reported it after since. Both times
// are by this machine's clock: kubelet sets them.
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
	for _, c := range node.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		if c.Status != corev1.ConditionTrue {
			return fmt.Errorf("node %s is not Ready: %s", name, c.Message)
		}
		if c.LastHeartbeatTime.Time.Before(since.Truncate(time.Second)) { // whole seconds
			return fmt.Errorf("node %s has not told its status since kubelet's restart", name)
		}
		return nil
	}
	return fmt.Errorf("node %s has no condition Ready", name)
}
