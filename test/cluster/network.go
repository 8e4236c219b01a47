package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// bridgePrefix begins the name of each node's bridge; its number follows.
const bridgePrefix = "edgehub"

// network is what the node with one number has of addresses.
//
// The subnets are in 198.18.0.0/15, set aside for tests of network devices
// (RFC 2544), so that they are in nobody's way. Pods and host reach each other,
// pods of different nodes do not: that would take a change of the host's
// net.ipv4.ip_forward.
type network struct {
	loopback string // the hub's address, and the kubelet's for its health
	bridge   string // interface
	subnet   string // of the pods
	nodeIP   string // the bridge's own; kubelet must not have a loopback address
}

func networkOf(number int) network {
	return network{
		loopback: fmt.Sprintf("127.0.0.%d", 10+number),
		bridge:   bridgePrefix + strconv.Itoa(number),
		subnet:   fmt.Sprintf("198.18.%d.0/24", number),
		nodeIP:   fmt.Sprintf("198.18.%d.1", number),
	}
}

// create makes the bridge with the node's address.
func (n network) create() error {
	return errors.Join(
		ip("link", "add", n.bridge, "type", "bridge"),
		ip("address", "add", n.nodeIP+"/24", "dev", n.bridge),
		ip("link", "set", n.bridge, "up"),
	)
}

// removeBridges removes the bridges of all nodes, those of a cluster that
// crashed among them, with the pods' interfaces on them: those go anyway, but
// only when the kernel gets round to it.
func removeBridges() error {
	bridges, err := findBridges()
	if err != nil {
		return err
	}
	var errs []error
	for _, device := range bridges {
		ports, err := os.ReadDir(filepath.Join(device, "brif"))
		errs = append(errs, err)
		for _, port := range ports {
			errs = append(errs, removeInterface(port.Name()))
		}
		errs = append(errs, removeInterface(filepath.Base(device)))
	}
	return errors.Join(errs...)
}

// findBridges returns them as their folders in /sys.
func findBridges() ([]string, error) {
	bridges, err := filepath.Glob("/sys/class/net/" + bridgePrefix + "*/bridge")
	for i, bridge := range bridges {
		bridges[i] = filepath.Dir(bridge)
	}
	return bridges, err
}

func removeInterface(name string) error {
	err := ip("link", "delete", name)
	if _, statErr := os.Stat("/sys/class/net/" + name); errors.Is(statErr, fs.ErrNotExist) {
		return nil
	}
	return err
}

func ip(args ...string) error {
	out, err := command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
