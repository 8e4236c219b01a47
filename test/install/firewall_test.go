package install

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/test/install/machine"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// firewall is one of Debian's, with commands for sh.
type firewall struct {
	name        string
	start, stop string
	rule        string // that refuses pods, as an install names it
	command     string // how the first begins that an install prints
	undo        string // what takes back those that it prints
	reloads     []string
}

// firewalls are those whose commands outlast a reboot. Those of iptables are run in the unit tests of install/firewall.
var firewalls = []firewall{
	{
		name: "ufw", start: "systemctl start ufw; ufw --force enable; ufw reload", stop: "ufw disable; systemctl stop ufw",
		rule: `"-P INPUT DROP" (iptables-save)`, command: "ufw allow proto tcp from " + podCIDR + " to " + hubIP,
		undo:    "ufw delete allow proto tcp from " + podCIDR + " to " + hubIP + " port 10268",
		reloads: []string{"ufw reload", "ufw disable; ufw --force enable", "systemctl restart ufw", "systemctl stop ufw; systemctl start ufw"},
	},
	{
		name: "firewalld", start: startFirewalld, stop: "systemctl stop firewalld",
		rule:    `"reject with icmpx admin-prohibited" of nftables' chain inet firewalld filter_INPUT`,
		command: "firewall-cmd --permanent '--add-rich-rule=rule family=",
		undo: `for permanent in --permanent ""; do firewall-cmd $permanent '--remove-rich-rule=rule family="ipv4" source address="` + podCIDR +
			`" destination address="` + hubIP + `" port port="10268" protocol="tcp" accept'; done`,
		reloads: []string{"firewall-cmd --reload", "firewall-cmd --complete-reload", "systemctl restart firewalld; firewall-cmd --state", "systemctl stop firewalld; " + startFirewalld},
	},
	{
		name: "nftables' own rules", start: `cp /etc/nftables.conf /etc/nftables.conf.before; cat > /etc/nftables.conf << 'END'
flush ruleset
table inet filter {
	chain input {
		type filter hook input priority filter; policy accept;
		iif "lo" accept
		ct state established,related accept
		meta l4proto ipv6-icmp accept
		tcp dport 10250 accept
		reject
	}
}
END
cp /etc/nftables.conf /etc/nftables.conf.mine; systemctl enable nftables; systemctl start nftables`,
		stop: "systemctl disable nftables; systemctl stop nftables; mv /etc/nftables.conf.before /etc/nftables.conf; rm /etc/nftables.conf.mine",
		rule: `" of nftables' chain inet filter input`, command: "nft 'insert rule inet filter input ip saddr " + podCIDR,
		undo:    "cp /etc/nftables.conf.mine /etc/nftables.conf; systemctl reload nftables",
		reloads: []string{"systemctl reload nftables", "systemctl restart nftables", "systemctl stop nftables; systemctl start nftables"},
	},
}

// startFirewalld returns when its rules are loaded: systemd takes it for started before.
const startFirewalld = "systemctl start firewalld; firewall-cmd --state"

const podCIDR = "198.19.251.0/24" // networkConfig's

// TestFirewalls has each firewall keep pods from the hub, and let in pods alone by the commands that an install prints.
func TestFirewalls(t *testing.T) {
	machine.Need(t, "firewalls, on a machine with systemd")
	n := newNode(t)
	n.installPackages("dbus", "firewalld", "nftables", "ufw")
	n.systemctl("start", "dbus.socket")
	n.startPod()
	patch := []byte(`{"spec":{"podCIDR":"` + podCIDR + `","podCIDRs":["` + podCIDR + `"]}}`)
	if _, err := n.client.CoreV1().Nodes().Patch(t.Context(), nodeName, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	hub := n.build(false)
	n.routeToHub()
	n.must(hub, "install")
	if pod, outside := n.fromPod(), n.fromOutside(); pod != nil || outside != nil {
		t.Fatalf("without a firewall not all reach the hub, so that this shows nothing: %v, %v", pod, outside)
	}
	n.must(hub, "uninstall")
	for _, f := range firewalls {
		if !t.Run(f.name, func(t *testing.T) {
			m := *n
			m.t = t
			defer m.sh(f.stop)
			m.sh(f.start)
			before := m.rules()
			out, err := m.edgehub(hub, "install")
			m.fails(err, f.rule)
			m.contains(out, "A reboot keeps what these add.", "everything was put back as it was")
			m.unchangedRules(before)
			var commands []string
			for line := range strings.Lines(out) {
				if command, ok := strings.CutPrefix(line, "  "); ok && (len(commands) > 0 || strings.HasPrefix(command, f.command)) {
					commands = append(commands, strings.TrimSpace(command))
				}
			}
			if len(commands) == 0 {
				t.Fatalf("no command begins with %q", f.command)
			}
			m.sh(strings.Join(commands, "\n"))
			m.must(hub, "install")
			m.isOpen("the commands")
			for _, command := range f.reloads {
				m.sh(command)
				m.isOpen(command)
			}
			m.must(hub, "uninstall")
			m.sh(f.undo)
			m.unchangedRules(before)
		}) {
			return // the hub may still be installed
		}
	}
}

// installPackages installs Debian's packages in the machine, from the host's network, and has its
// systemd know their units: nothing starts by itself, and the host stays as it is.
func (n *node) installPackages(names ...string) {
	n.t.Helper()
	script, err := os.Open("../../.ci/packages")
	if err != nil {
		n.t.Fatal(err)
	}
	defer script.Close()
	args := append([]string{"--target", strconv.Itoa(n.PID()), "--mount", "--uts", "--ipc", "--pid", "--", "bash", "-s", "--"}, names...)
	cmd := exec.CommandContext(n.t.Context(), "nsenter", args...)
	cmd.Stdin = script
	if out, err := cmd.CombinedOutput(); err != nil {
		n.t.Fatalf("install %v: %v\n%s", names, err, out)
	}
	n.sh("cd /lib/systemd/system; cp dbus.socket dbus.service firewalld.service nftables.service ufw.service /usr/lib/test-units; systemctl daemon-reload")
}

// sh runs a command in the machine.
func (n *node) sh(command string) string {
	n.t.Helper()
	out, err := n.Run(n.t.Context(), "sh", "-ec", command)
	if err != nil {
		n.t.Fatal(err)
	}
	return out
}

// rules are all of the firewall's, without counters.
func (n *node) rules() string {
	n.t.Helper()
	return n.sh(`nft --stateless list ruleset; cat /etc/ufw/*.rules
if firewall-cmd --state >/dev/null 2>&1; then firewall-cmd --list-all-zones; firewall-cmd --permanent --list-all-zones; fi`)
}

func (n *node) unchangedRules(before string) {
	n.t.Helper()
	if now := n.rules(); now != before {
		n.t.Errorf("the firewall was\n%s\nand is\n%s", before, now)
	}
}

// isOpen fails the test unless a pod reaches the hub, and the outside does not.
func (n *node) isOpen(after string) {
	n.t.Helper()
	poll.Check(n.t.Context(), n.t, "after "+after+" the pod reaches the hub", func(context.Context) error { return n.fromPod() })
	if err := n.fromOutside(); err == nil {
		n.t.Errorf("after %s the outside reaches the hub", after)
	}
}

// dialTimeout is for an answer that a firewall drops; one that comes takes no time.
const dialTimeout = 5 * time.Second

// fromPod connects to the hub from the pod's network.
func (n *node) fromPod() error {
	n.t.Helper()
	id, err := n.container(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	_, err = n.Run(n.t.Context(), "bash", "-c", `pid=$(ctr --namespace=k8s.io tasks list | awk -v id="$1" '$1 == id { print $2 }')
exec nsenter --target "$pid" --net timeout "$2" bash -c "</dev/tcp/$3/10268"`, "", strings.TrimPrefix(id, "containerd://"), strconv.Itoa(int(dialTimeout.Seconds())), hubIP)
	return err
}

// routeToHub has the host's packets for the hub's address for pods go to the machine.
func (n *node) routeToHub() {
	n.t.Helper()
	route := []string{hubIP + "/32", "via", machine.IP}
	if out, err := exec.CommandContext(n.t.Context(), "ip", append([]string{"route", "add"}, route...)...).CombinedOutput(); err != nil {
		n.t.Fatalf("%v: %s", err, out)
	}
	n.t.Cleanup(func() { // before the machine's wire goes, and the route with it
		if out, err := exec.Command("ip", append([]string{"route", "delete"}, route...)...).CombinedOutput(); err != nil {
			n.t.Errorf("%v: %s", err, bytes.TrimSpace(out))
		}
	})
}

// fromOutside connects to it from the host.
func (n *node) fromOutside() error {
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(n.t.Context(), "tcp", net.JoinHostPort(hubIP, "10268"))
	if err != nil {
		return err
	}
	return conn.Close()
}
