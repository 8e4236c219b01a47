package cluster

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// newBoot gives the node another boot ID. kubelet and hub read it when they start, and count on it not to change while they run.
func (n *Node) newBoot() error {
	if err := os.WriteFile(n.bootIDFile(), fmt.Appendln(nil, uuid.NewUUID()), 0o644); err != nil {
		return fmt.Errorf("give %s another boot ID: %w", n.name, err)
	}
	return nil
}

func (n *Node) bootIDFile() string { return n.path(sysctlFolder, bootIDSetting) }

// newHubLauncher starts hubs on the host, which see what the host sees, but for the boot ID of their node.
func (n *Node) newHubLauncher() (*launcher, error) {
	l, err := newLauncher(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		// The host's mounts to come appear here, and not the other way round.
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
			return fmt.Errorf("part from the mounts of the host: %w", err)
		}
		return unix.Mount(n.bootIDFile(), "/proc/sys/"+bootIDSetting, "", unix.MS_BIND, "")
	})
	if err != nil {
		return nil, fmt.Errorf("have the hub of %s see the boot ID of its node: %w", n.name, err)
	}
	l.parentDeath = syscall.SIGKILL
	return l, nil
}
