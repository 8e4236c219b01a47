package kubeadm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
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
