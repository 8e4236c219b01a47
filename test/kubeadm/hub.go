package kubeadm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/edgehub-io/edgehub/ota/api"
)

// hubIs waits until the hub's status line in systemd begins with a word.
func (c *Cluster) hubIs(ctx context.Context, say Say, word string) error {
	return c.eventually(ctx, say, "the hub is "+word, func(ctx context.Context) error {
		out, err := c.machines[edge].Run(ctx, "systemctl", "show", "edgehub.service", "--property=StatusText", "--value")
		if err == nil && !strings.HasPrefix(out, word) {
			err = errors.New("the hub is " + strings.TrimSpace(out))
		}
		return err
	})
}

// proxiesAreUnused returns an error unless the hub says that the pods with a proxy use the hub.
func (c *Cluster) proxiesAreUnused(ctx context.Context) error {
	text, err := c.get(ctx, "http://127.0.0.1:10267/debug/cache")
	if err != nil {
		return err
	}
	var state struct {
		PodAccess struct {
			Pods []struct{ Name, Route, Proxy string }
		}
	}
	if err := json.Unmarshal([]byte(text), &state); err != nil {
		return err
	}
	found := 0
	for _, pod := range state.PodAccess.Pods {
		if !strings.HasPrefix(pod.Name, "proxied-") && !strings.HasPrefix(pod.Name, "kube-proxy-") {
			continue
		}
		if found++; pod.Route == "Proxy" || pod.Proxy != "" {
			return fmt.Errorf("pod %s: %s", pod.Name, pod.Proxy)
		}
	}
	if found != 2 {
		return fmt.Errorf("%d pods with a proxy, of 2, are listed: %s", found, text)
	}
	return nil
}

// readers are the resources that each user has read through the hub.
type readers map[string][]string

func (r readers) lines() []string {
	var lines []string
	for _, user := range slices.Sorted(maps.Keys(r)) {
		lines = append(lines, fmt.Sprintf("%-12s %s", user, strings.Join(r[user], " ")))
	}
	return lines
}

// hubUsers asks the hub whom it has views for.
func (c *Cluster) hubUsers(ctx context.Context) (readers, error) {
	text, err := c.get(ctx, "http://127.0.0.1:10267/debug/cache")
	if err != nil {
		return nil, err
	}
	var state struct {
		Views []struct{ User, Resource string }
	}
	if err := json.Unmarshal([]byte(text), &state); err != nil {
		return nil, err
	}
	users := readers{}
	for _, view := range state.Views {
		account, _, _ := strings.Cut(view.User, "#") // its UID
		user := account[strings.LastIndex(account, ":")+1:]
		resource, _, _ := strings.Cut(view.Resource, ".")
		if !slices.Contains(users[user], resource) {
			users[user] = append(users[user], resource)
		}
	}
	for _, resources := range users {
		slices.Sort(resources)
	}
	return users, nil
}

func (c *Cluster) everyPodUsesHub(ctx context.Context, say Say) error {
	return c.eventually(ctx, say, "every pod uses the hub, by its /debug/cache", c.routesAreHub)
}

func (c *Cluster) routesAreHub(ctx context.Context) error {
	access, err := c.podAccess(ctx)
	if err != nil {
		return err
	}
	if len(access.Pods) < len(everyProgram) {
		return fmt.Errorf("%d pods have a route: %s", len(access.Pods), access.Unknown)
	}
	for _, p := range access.Pods {
		if p.Route != api.ThroughHub {
			return fmt.Errorf("the route of pod %s is %s", p.Name, p.Route)
		}
	}
	return nil
}

func (c *Cluster) podAccess(ctx context.Context) (*api.PodAccess, error) {
	text, err := c.get(ctx, "http://127.0.0.1:10267"+api.Cache)
	if err != nil {
		return nil, err
	}
	var state struct{ PodAccess api.PodAccess }
	err = json.Unmarshal([]byte(text), &state)
	return &state.PodAccess, err
}
