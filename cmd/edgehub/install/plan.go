package install

import (
	"cmp"
	"context"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cmd/edgehub/install/apiserver"
	"github.com/edgehub-io/edgehub/cmd/edgehub/install/dummyif"
	"github.com/edgehub-io/edgehub/cmd/edgehub/install/files"
	"github.com/edgehub-io/edgehub/cmd/edgehub/install/kubelet"
	"github.com/edgehub-io/edgehub/cmd/edgehub/install/systemctl"
	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/kubeconfig"
	"github.com/edgehub-io/edgehub/ota/api"
)

const (
	hubService     = "edgehub.service"
	hubSocket      = "edgehub.socket"
	kubeletService = kubelet.Service
)

// The files that an install writes.
const (
	binaryFile        = "/usr/local/bin/edgehub"
	unitFolder        = "/etc/systemd/system"
	serviceFile       = unitFolder + "/" + hubService
	socketFile        = unitFolder + "/" + hubSocket
	serviceLink       = unitFolder + "/multi-user.target.wants/" + hubService
	socketLink        = unitFolder + "/sockets.target.wants/" + hubSocket
	envFile           = "/etc/edgehub/edgehub.env"
	kubeletKubeconfig = "/etc/kubernetes/edgehub-kubelet.conf"
	dropInFile        = unitFolder + "/kubelet.service.d/20-edgehub.conf"
)

//go:embed templates
var templates embed.FS

// plannedFile is one file, or link, that an install writes.
type plannedFile struct {
	path string
	files.Entry
	content []byte
}

// plan is everything that an install does.
type plan struct {
	options *Options
	config  *config.Config
	version string
	all     []plannedFile     // kubelet's drop-in is the last
	changed []plannedFile     // the files that differ from those on the node
	sockets bool              // the sockets are replaced
	restart bool              // the hub is restarted
	kubelet bool              // kubelet is restarted
	cloud   *apiserver.Client // with the node's own credentials
	first   bool              // no hub is installed
	uid     types.UID         // of the Node in the cloud; empty: it is not known

	endpoint  string         // of containerd
	bypass    []api.PodRoute // of pods that bypass the hub, or will
	oldIf     string         // an interface of the hub that is installed, which is removed first
	proxy     bool           // the hub is given kubelet's variables that name a proxy
	leadsAnew bool           // kubelet does not lead pods to these addresses so far
	onPlain   bool           // kubelet is to leave the plain port, which earlier versions had it use
}

// newPlan renders all files, and compares them with those on the node.
func newPlan(ctx context.Context, o *Options, k *kubelet.Kubelet, earlier *installed, version string) (*plan, error) {
	p := &plan{options: o, version: version, first: earlier == nil, endpoint: k.Endpoint}
	p.onPlain = earlier != nil && earlier.Options.KubeletPort == plainPort
	env, extra, err := environment(o)
	if err != nil {
		return nil, err
	}
	args := o.hubArgs(k.Endpoint, k.RootDir())
	if p.config, err = hubConfig(append(slices.Clone(args), extra...)); err != nil {
		return nil, err
	}
	if err := errors.Join(validateUnitArgs(args...), checkPaths(p.config)); err != nil {
		return nil, err
	}
	if root := p.config.RootDir; root != config.NewOptions().RootDir && (earlier == nil || earlier.RootDir != root) {
		if err := checkRootDir(root); err != nil {
			return nil, err
		}
	}
	values, err := p.values(ctx, args, extra, k)
	if err != nil {
		return nil, err
	}
	if err := p.addFiles(values, env, k.Proxy); err != nil {
		return nil, err
	}
	if err := p.addNetworkFiles(); err != nil {
		return nil, err
	}
	p.dropOptional(earlier)
	if earlier != nil && (earlier.Interface != o.dummyIf(p.config) || !slices.Equal(earlier.PodServers, p.config.PodServers())) {
		p.oldIf = earlier.Interface
	}
	err = p.compare(ctx)
	// kubelet reads what leads pods to the hub once, and then only what changes in the cloud.
	p.leadsAnew = earlier == nil || earlier.Written[dropInFile].Kind == "" || !slices.Equal(earlier.PodServers, p.config.PodServers()) || !slices.Equal(earlier.Transforms, p.config.Transforms)
	if earlier != nil && p.leadsAnew {
		p.kubelet = true
	}
	return p, err
}

// values returns pairs of a placeholder and its value, for the templates.
func (p *plan) values(ctx context.Context, args, extra []string, k *kubelet.Kubelet) ([]string, error) {
	server, err := kubeletServer(p.config)
	if err != nil {
		return nil, err
	}
	credentials, err := clientCertificate(k, p.options.Kubeconfig)
	if err != nil {
		return nil, err
	}
	var rootDir, backoff string
	if p.config.RootDir != config.NewOptions().RootDir { // which StateDirectory= covers
		rootDir = "\nReadWritePaths=" + p.config.RootDir
	}
	const stepsSince = 254 // version of systemd
	if systemctl.Version(ctx) >= stepsSince {
		backoff = "\nRestartSteps=6\nRestartMaxDelaySec=30"
	}
	// The hub's own certificate is pinned as the CA. It has no end, and is not renewed. It signs for the server name.
	pinned := filepath.Join(p.config.PKIDir(), "serving.crt")
	var comment, address string
	lines, err := dummyif.UnitLines(ctx, p.options.DummyIfName, p.config.PodAddresses)
	if err != nil {
		return nil, err
	}
	if len(lines) > 0 {
		comment = "\n# Pods reach the hub at the addresses of " + p.options.DummyIfName + ", which outlives this unit."
		address = "\n" + strings.Join(lines, "\n")
	}
	const afterGrace = 15 * time.Second // for requests that are cut, and the cache's last write
	return []string{
		"{{BINARY}}", binaryFile, "{{ENV_FILE}}", envFile, "{{KUBELET_ENV}}", kubeletEnvFile, "{{KUBECONFIG}}", p.options.Kubeconfig,
		"{{ARGS}}", strings.Join(args, " "), "{{EXTRA}}", strings.Join(extra, " "),
		"{{SOCKETS}}", "\nListenStream=" + strings.Join(sockets(p.config), "\nListenStream="),
		"{{ADDRESS_COMMENT}}", comment, "{{ADDRESS}}", address,
		"{{BACKOFF}}", backoff,
		"{{STOP_SECONDS}}", strconv.Itoa(int((p.config.ShutdownGrace + afterGrace).Seconds())),
		"{{ROOT_DIR}}", rootDir,
		"{{KUBELET_SERVER}}", server, "{{AUTHORITY}}", pinned, "{{SERVER_NAME}}", hubName(kubeletKubeconfig), "{{CREDENTIALS}}", credentials,
	}, nil
}

// hubName returns the secret tls-server-name in kubelet's kubeconfig for the hub, or a new one.
func hubName(file string) string {
	if name, _, err := kubeconfig.HubName(file); err == nil && kubeconfig.IsHubName(name) {
		return name
	}
	return kubeconfig.NewHubName()
}

// clientCertificate returns lines of a kubeconfig with kubelet's client certificate: the one that it
// rotates or, if it does not, that of the node's own kubeconfig.
func clientCertificate(k *kubelet.Kubelet, ownKubeconfig string) (string, error) {
	lines := func(suffix, certificate, key string) string {
		return "\n    client-certificate" + suffix + ": " + certificate + "\n    client-key" + suffix + ": " + key
	}
	if _, err := os.Stat(k.Certificate()); err == nil {
		return lines("", k.Certificate(), k.Certificate()), nil
	}
	own, err := kubeconfig.LoadREST(ownKubeconfig)
	if err != nil {
		return "", fmt.Errorf("find kubelet's client certificate: %w", err)
	}
	if own.CertFile != "" {
		return lines("", own.CertFile, own.KeyFile), nil
	}
	return lines("-data", base64.StdEncoding.EncodeToString(own.CertData), base64.StdEncoding.EncodeToString(own.KeyData)), nil
}

// addFiles lists the files. env is the content of the environment file; nil: the template's. proxy
// are kubelet's variables.
func (p *plan) addFiles(values []string, env []byte, proxy []string) error {
	binary, err := os.ReadFile(cmp.Or(p.options.Binary, "/proc/self/exe")) // the latter also if its file was replaced meanwhile
	if err != nil {
		return fmt.Errorf("read the program to install: %w", err)
	}
	file := func(path string, mode fs.FileMode, content []byte) {
		p.all = append(p.all, plannedFile{path, files.Entry{Kind: files.KindFile, Mode: mode, Sum: files.Sum(content)}, content})
	}
	link := func(path, target string) {
		p.all = append(p.all, plannedFile{path, files.Entry{Kind: files.KindLink, Target: target}, nil})
	}
	rendered := func(name string) []byte {
		content, renderErr := render(name, values)
		err = errors.Join(err, renderErr)
		return content
	}
	if env == nil {
		env = rendered("edgehub.env")
	}
	env, p.proxy = withProxy(env, proxy)
	envEntry, envErr := environmentEntry(envFile, env, p.proxy)
	if envErr != nil {
		return envErr
	}
	file(binaryFile, 0o755, binary)
	p.all = append(p.all, plannedFile{envFile, envEntry, env})
	file(socketFile, 0o644, rendered(hubSocket))
	file(serviceFile, 0o644, rendered(hubService))
	link(socketLink, socketFile)
	link(serviceLink, serviceFile)
	file(rejoinFile, 0o644, rendered(rejoinService))
	file(kubeletKubeconfig, 0o600, rendered("edgehub-kubelet.conf"))
	led, ledErr := kubeletEnv(p.options.Kubeconfig)
	file(kubeletEnvFile, 0o644, led)
	file(dropInFile, 0o644, rendered("20-edgehub.conf"))
	return errors.Join(err, ledErr)
}

// leadsKubelet reports whether a file leads kubelet to the hub, and so is written when that answers.
func leadsKubelet(path string) bool { return path == dropInFile || path == kubeletEnvFile }

// networkFiles have programs that set up networks leave the dummy interface alone: systemd-networkd, which would
// have a boot wait for it where a file of its own matches any name, and NetworkManager. The first file that
// matches counts, by name.
func networkFiles() []string {
	return []string{"/etc/systemd/network/00-edgehub.network", "/etc/NetworkManager/conf.d/00-edgehub.conf"}
}

// addNetworkFiles plans those of programs that the node has.
func (p *plan) addNetworkFiles() error {
	name := p.options.dummyIf(p.config)
	if name == "" {
		return nil
	}
	for _, path := range networkFiles() {
		if _, err := os.Stat(filepath.Dir(path)); err != nil {
			continue
		}
		content, err := render(filepath.Base(path), []string{"{{INTERFACE}}", name})
		if err != nil {
			return err
		}
		p.add(path, files.Entry{Kind: files.KindFile, Mode: 0o644, Sum: files.Sum(content)}, content)
	}
	return nil
}

// render fills in a template. With text/template instead of strings.Replacer, the linker could not
// remove unused methods, 9 MB of them.
func render(name string, values []string) ([]byte, error) {
	text, err := templates.ReadFile("templates/" + name)
	if err != nil {
		return nil, err
	}
	return []byte(strings.NewReplacer(values...).Replace(string(text))), nil
}

// compare determines what changes.
func (p *plan) compare(ctx context.Context) error {
	for _, f := range p.all {
		ok, err := files.Same(f.path, f.Entry)
		if err != nil {
			return err
		}
		if f.path == envFile && files.SameContent(f.path, f.content) {
			ok = true // its owner and mode are the administrator's choice
		}
		if ok {
			continue
		}
		p.changed = append(p.changed, f)
		switch f.path {
		case dropInFile, kubeletKubeconfig:
			p.kubelet = true
		case kubeletEnvFile: // the hub reads once which apiserver the kubeconfig names
			p.kubelet, p.restart = true, true
		case socketFile:
			p.sockets = true
		case networkFiles()[0], networkFiles()[1]: // they are read at the next boot
		default:
			p.restart = true
		}
	}
	pid, err := systemctl.MainPID(ctx, hubService)
	if err != nil {
		return err
	}
	running, err := os.ReadFile(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil || files.Sum(running) != p.all[0].Sum {
		p.restart = true
	}
	p.sockets = p.sockets || !socketsAreOpen(ctx)
	p.restart = p.restart || p.sockets
	return nil
}

func (p *plan) upToDate() bool { return len(p.changed) == 0 && !p.restart && !p.kubelet }

// print lists files and commands. With texts, it also prints the new contents.
func (p *plan) print(w io.Writer, texts bool) {
	fmt.Fprintln(w, "\nfiles:")
	for _, f := range p.all {
		word := "same   "
		if slices.ContainsFunc(p.changed, func(c plannedFile) bool { return c.path == f.path }) {
			word = "write  "
			if _, err := os.Lstat(f.path); err == nil {
				word = "replace"
			}
		}
		if f.Kind == "" {
			fmt.Fprintf(w, "  remove   %s\n", f.path)
			continue
		}
		fmt.Fprintf(w, "  %s  %s", word, f.path)
		if f.Kind == files.KindLink {
			fmt.Fprintf(w, " -> %s\n", f.Target)
			continue
		}
		fmt.Fprintf(w, "  (mode %04o, %d bytes)\n", f.Mode, len(f.content))
	}
	fmt.Fprintln(w, "commands:")
	for _, c := range p.commands() {
		fmt.Fprintln(w, "  "+c)
	}
	if !texts {
		return
	}
	printBypassing(w, p.bypass)
	for _, f := range p.changed {
		switch {
		case f.path == envFile:
			fmt.Fprintf(w, "\n--- %s\n%s", f.path, withoutValues(f.content))
		case f.path == kubeletKubeconfig:
			fmt.Fprintf(w, "\n--- %s\n%s", f.path, kubeconfigSecrets.ReplaceAll(f.content, []byte("$1…")))
		case f.Kind == files.KindFile && f.path != binaryFile:
			fmt.Fprintf(w, "\n--- %s\n%s", f.path, f.content)
		}
	}
}

// kubeconfigSecrets matches the lines of kubelet's kubeconfig for the hub that people are not shown.
var kubeconfigSecrets = regexp.MustCompile(`(?m)^( *(?:tls-server-name|client-key-data): ).*$`)

// commands describes what apply will run.
func (p *plan) commands() []string {
	var all []string
	if len(p.changed) > 0 {
		all = append(all, "systemctl daemon-reload")
	}
	if p.sockets && p.onPlain {
		all = append(all, "systemctl stop "+kubeletService)
	}
	if p.sockets && !p.first {
		all = append(all, "systemctl stop "+hubService+" "+hubSocket)
	}
	if p.sockets && p.oldIf != "" {
		all = append(all, "ip link delete dev "+p.oldIf)
	}
	if p.sockets {
		start := "systemctl start " + hubSocket
		if name := p.options.dummyIf(p.config); name != "" {
			start += ", which sets up the interface " + name
		}
		all = append(all, start)
	}
	if p.restart {
		all = append(all, "systemctl restart "+hubService, fmt.Sprintf("wait until the hub is ready, and the node reads itself through it (at most %v)", p.options.Wait))
	}
	if p.leadsPods() {
		all = append(all, "ask the hub from network namespaces of pods")
	}
	if p.kubelet {
		all = append(all, "systemctl restart "+kubeletService, fmt.Sprintf("wait until node %s is Ready and has renewed its lease through the hub (at most %v)", p.options.NodeName, p.options.Wait))
	}
	return all
}
