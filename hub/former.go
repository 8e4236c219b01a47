package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cache"
	"github.com/edgehub-io/edgehub/hub/binding"
	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/systemd"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/podfiles"
)

// setAsideTimeout is how long systemd waits for a hub that has data to set aside, in microseconds: ten minutes, in which a card that
// writes 1 MB/s takes a cache of the default 256 MiB twice.
const setAsideTimeout = "600000000"

// loadBinding reads whose folder --root-dir is. If it is another cluster's, or another node's, what that has left is set aside first:
// nothing else may be open yet.
func loadBinding(c *config.Config, notifier *systemd.Notifier, log *slog.Logger) (binding.Record, error) {
	if err := os.MkdirAll(c.RootDir, 0o700); err != nil {
		return binding.Record{}, fmt.Errorf("--root-dir: %w", err)
	}
	r, why, err := binding.Load(c.BindingFile(), c.NodeName, log)
	if err == nil && why != "" {
		notifier.Notify("EXTEND_TIMEOUT_USEC=" + setAsideTimeout)
		if err = setAside(c, r.Node != c.NodeName, log.With("why", why)); err == nil {
			r = binding.Begin(c.BindingFile(), c.NodeName, log)
		}
	}
	if err != nil {
		return r, fmt.Errorf("--root-dir %s: %w", c.RootDir, err)
	}
	return r, nil
}

// setAside erases what is cached of another cluster, or node, and moves what else it has left into a folder beside, of which only the
// last one stays. What is the node's own stays where it is: the CA and certificates that its clients trust, images, and its owner's
// tokens for the page. Those of another node go, too, as do its credentials. A crash in between repeats what is left of it.
func setAside(c *config.Config, ofNode bool, log *slog.Logger) error {
	if err := cache.Erase(filepath.Join(c.RootDir, "cache")); err != nil {
		return fmt.Errorf("set aside the data of another cluster or node: %w", err)
	}
	queued, holds := waiting(filepath.Join(c.RootDir, "upgrades"), log)
	former, moved := filepath.Join(c.RootDir, config.FormerName), []string{"upgrades"}
	if ofNode {
		moved = append(moved, "web-tokens.json", "outage.json", filepath.Join("pki", "hub.kubeconfig"), filepath.Join("pki", "hub.key.pending"))
	}
	moved = slices.DeleteFunc(moved, func(name string) bool {
		_, err := os.Lstat(filepath.Join(c.RootDir, name))
		return errors.Is(err, fs.ErrNotExist)
	})
	if len(moved) > 0 { // else a start before this one has moved them
		err := errors.Join(os.RemoveAll(former), os.Mkdir(former, 0o700))
		for _, name := range moved {
			err = errors.Join(err, moveInto(former, filepath.Join(c.RootDir, name), log))
		}
		if err != nil {
			return fmt.Errorf("set aside the data of another cluster or node: %w", err)
		}
	}
	log.Warn("the hub's data is set aside: nothing of it is served or sent. What was cached is erased, and the Events, upgrades and holds that waited are dropped",
		"folder", former, "upgrades", len(queued), "holds", len(holds), "upgrades-of", names(queued), "holds-of", names(holds))
	return nil
}

// moveInto moves a file or folder into another folder. What cannot be moved, such as the mount point of a file system of its own, is
// removed, or all that is in it.
func moveInto(folder, name string, log *slog.Logger) error {
	moveErr := os.Rename(name, filepath.Join(folder, filepath.Base(name)))
	if moveErr == nil {
		return nil
	}
	log.Warn("this cannot be moved, and is removed", "name", name, "err", moveErr)
	entries, err := os.ReadDir(name)
	if err != nil {
		return os.Remove(name)
	}
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(name, e.Name())))
	}
	return err
}

// waiting returns the pods of which an upgrade waits, and those that are held.
func waiting(dir string, log *slog.Logger) (queued, holds []types.NamespacedName) {
	if _, err := os.Stat(dir); err != nil {
		return nil, nil
	}
	_, upgrades, _ := podfiles.Open[api.Upgrade](filepath.Join(dir, "queue"), log) // what cannot be read is not counted
	for pod, u := range upgrades {
		if !u.State.Final() {
			queued = append(queued, pod)
		}
	}
	_, held, _ := podfiles.Open[struct{ Until time.Time }](filepath.Join(dir, "hold"), log)
	for pod, h := range held {
		if h.Until.After(time.Now()) { // the file of one that has ended stays for a while
			holds = append(holds, pod)
		}
	}
	return queued, holds
}

// names returns the first of some pods, for a log line.
func names(pods []types.NamespacedName) string {
	const most = 20
	var all []string
	for _, pod := range pods {
		all = append(all, pod.String())
	}
	slices.Sort(all)
	if len(all) > most {
		all = append(all[:most], "…")
	}
	return strings.Join(all, " ")
}
