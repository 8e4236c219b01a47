package install

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/cmd/edgehub/install/files"
	"github.com/edgehub-io/edgehub/cmd/edgehub/install/kubelet"
	"github.com/edgehub-io/edgehub/hub/config"
)

const ownKubeconfig = `{clusters: [{name: c, cluster: {server: "https://127.0.0.1:6443"}}], contexts: [{name: c, context: {cluster: c, user: node}}],
current-context: c, users: [{name: node, user: {client-certificate-data: Y2VydA==, client-key-data: a2V5}}]}`

// writeUnits renders the units for a node, with this test in place of the hub.
func writeUnits(t *testing.T) (folder string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	folder = t.TempDir()
	p := &plan{options: NewOptions(), config: &config.Config{
		ServeAddress: "127.0.0.1:10267", ProxyAddress: "127.0.0.1:10261", SecureAddress: "127.0.0.1:10268",
		Options: config.Options{RootDir: "/var/lib/edgehub", ShutdownGrace: 5 * time.Second},
	}}
	if os.Geteuid() == 0 { // it takes root to find out which interfaces the kernel has
		p.config.PodAddresses = []netip.Addr{netip.MustParseAddr("169.254.2.1"), netip.MustParseAddr("fd00::2:1")}
		p.config.ProxySecurePort = 10268
	}
	p.options.Kubeconfig = filepath.Join(folder, "kubelet.conf")
	if err := os.WriteFile(p.options.Kubeconfig, []byte(ownKubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	values, err := p.values(t.Context(), []string{"--node-name=edge1"}, nil, &kubelet.Kubelet{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{hubService, hubSocket, rejoinService, "edgehub-kubelet.conf", "20-edgehub.conf"} {
		text, err := render(name, values)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "{{") {
			t.Errorf("%s is not filled in:\n%s", name, text)
		}
		text = []byte(strings.ReplaceAll(string(text), binaryFile, self))
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// With --kubelet-only there is no interface for network managers to leave alone.
func TestTheFilesOfNetworkManagersGoWithTheInterface(t *testing.T) {
	p := &plan{options: NewOptions(), all: make([]plannedFile, 1)} // kubelet's drop-in, which stays the last
	if p.dropOptional(nil); len(p.all) != 1 {
		t.Errorf("a first install: %v", p.all)
	}
	networkd := networkFiles()[0]
	earlier := &installed{Written: map[string]files.Entry{serviceFile: {Kind: files.KindFile}, networkd: {Kind: files.KindFile}}}
	if p.dropOptional(earlier); len(p.all) != 2 || p.all[0].path != networkd || p.all[0].Kind != "" {
		t.Errorf("one was written: %v", p.all)
	}
	earlier.Written[networkd] = files.Entry{}
	p.all = make([]plannedFile, 1)
	if p.dropOptional(earlier); len(p.all) != 1 {
		t.Errorf("it has gone: %v", p.all)
	}
}

// Kubelet's pods are led to an address of the family that the apiserver's Service has.
func TestAddressesThatPodsAreLedTo(t *testing.T) {
	p := &plan{options: NewOptions(), config: &config.Config{PodAddresses: []netip.Addr{netip.MustParseAddr("169.254.2.1"), netip.MustParseAddr("fd00::2:1")}}}
	p.config.ProxySecurePort = 10268
	for ips, want := range map[string]string{"": "[169.254.2.1:10268 [fd00::2:1]:10268]", "10.96.0.1": "[169.254.2.1:10268]", "10.96.0.1 fd10::1": "[169.254.2.1:10268 [fd00::2:1]:10268]"} {
		p.options.ServiceIPs = strings.Fields(ips)
		if got := fmt.Sprint(p.ledServers()); got != want {
			t.Errorf("%q: %s, not %s", ips, got, want)
		}
	}
}

func analyze(t *testing.T, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		if os.Geteuid() == 0 && os.Getenv("CI") != "" {
			t.Fatal("systemd-analyze is not installed: make test-unit installs it (Debian's package systemd)")
		}
		t.Skip("NOT RUN: the check of the units: systemd-analyze is not installed (Debian's package systemd)")
	}
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("systemd-analyze %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestSystemdAcceptsTheUnits(t *testing.T) {
	folder := writeUnits(t)
	units, err := filepath.Glob(filepath.Join(folder, "edgehub*.s*")) // services and sockets
	if err != nil {
		t.Fatal(err)
	}
	out := analyze(t, append([]string{"verify", "--man=no", "--recursive-errors=no"}, units...)...)
	for line := range strings.Lines(out) {
		if strings.Contains(line, "edgehub") {
			t.Error(line)
		}
	}
}

// TestServiceIsHardened limits the exposure that systemd-analyze reports, from 0 to 10: it is 2.2, and
// may be a little higher in other versions. The rest is what the hub needs: root, networks and /proc.
func TestServiceIsHardened(t *testing.T) {
	out := analyze(t, "security", "--offline=true", "--no-pager", "--threshold=25", filepath.Join(writeUnits(t), hubService))
	t.Log(out[max(0, strings.LastIndex(out, "Overall")):])
}

// Kubelet authenticates the hub, and proves who it is by the certificate that it has.
func TestKubeletsWayToTheHub(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(writeUnits(t), "edgehub-kubelet.conf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"  cluster:\n    server: https://127.0.0.1:10268\n    certificate-authority: /var/lib/edgehub/pki/serving.crt\n",
		"\n    tls-server-name: ",
		"  user:\n    client-certificate-data: Y2VydA==\n    client-key-data: a2V5\n", // it rotates none
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	pki := t.TempDir()
	file := filepath.Join(pki, "edgehub-kubelet.conf")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	name := hubName(file)
	if !strings.Contains(string(text), name) || name == hubName(pki) || name == hubName(filepath.Join(pki, "none")) {
		t.Errorf("the next install gives kubelet another name, or a node the same: %s", name)
	}
	var shown strings.Builder
	(&plan{config: &config.Config{}, options: NewOptions(), changed: []plannedFile{{kubeletKubeconfig, files.Entry{Kind: files.KindFile}, text}}}).print(&shown, true)
	if strings.Contains(shown.String(), name) || strings.Contains(shown.String(), "a2V5") || !strings.Contains(shown.String(), "tls-server-name: …\n") {
		t.Errorf("people are shown secrets:\n%s", &shown)
	}
	if used := config.NewOptions().KubeletKubeconfig; used != kubeletKubeconfig {
		t.Errorf("the hub reads %s", used)
	}
	rotated := &kubelet.Kubelet{Flags: map[string]string{"cert-dir": pki}}
	if err := os.WriteFile(rotated.Certificate(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want := "\n    client-certificate: " + rotated.Certificate() + "\n    client-key: " + rotated.Certificate()
	if got, err := clientCertificate(rotated, ""); err != nil || got != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}

// networkd runs systemd-networkd in a network of its own, with a file that matches any name. Its argument is another file, or "".
const networkd = `set -e
mount -t sysfs -o ro sysfs /sys # no udev tells of interfaces here
mount -t tmpfs run /run
mount -t tmpfs files /etc/systemd/network
mkdir -p /run/systemd/netif
chown systemd-network:systemd-network /run/systemd/netif
printf '[Match]\nName=edgehub-*\n[Network]\nDHCP=yes\n' >/etc/systemd/network/50-any.network
[ -z "$1" ] || cp "$1" /etc/systemd/network/00-edgehub.network
ip link add edgehub-dummy0 type bridge
ip address add 169.254.2.1/32 dev edgehub-dummy0
ip link set edgehub-dummy0 up
state=/run/systemd/netif/links/$(cat /sys/class/net/edgehub-dummy0/ifindex)
/lib/systemd/systemd-networkd &
until grep -qs 'ADMIN_STATE=\(unmanaged\|config\)' "$state"; do sleep 0.1; done
cat "$state"
kill $!
`

// Where a file of the administrator's matches any name, a boot would wait for our interface to be online.
func TestNetworkdLeavesTheInterfaceAlone(t *testing.T) {
	if _, err := os.Stat("/lib/systemd/systemd-networkd"); err != nil || os.Getuid() != 0 {
		t.Skipf("NOT RUN: systemd-networkd, which root starts: %v", err)
	}
	content, err := render("00-edgehub.network", []string{"{{INTERFACE}}", "edgehub-dummy0"})
	if err != nil {
		t.Fatal(err)
	}
	ours := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(ours, content, 0o644); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"": "REQUIRED_FOR_ONLINE=yes", ours: "ADMIN_STATE=unmanaged"} {
		out, err := exec.CommandContext(t.Context(), "timeout", "60", "unshare", "--net", "--mount", "bash", "-c", networkd, "bash", file).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("with the file %q: %v, want %s:\n%s", file, err, want, out)
		}
	}
}
