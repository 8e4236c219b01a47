package install

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/cmd/edgehub/install/apiserver"
	"github.com/edgehub-io/edgehub/cmd/edgehub/install/files"
	"github.com/edgehub-io/edgehub/cmd/edgehub/install/kubelet"
	"github.com/edgehub-io/edgehub/cmd/edgehub/install/systemctl"
	"github.com/edgehub-io/edgehub/imagepull/engine"
)

// checks prints the result of each check on a line. All checks run, so that all problems are known at
// once.
type checks struct {
	out    io.Writer
	failed bool
}

func (c *checks) ok(format string, args ...any) {
	fmt.Fprintf(c.out, "  ok    %s\n", fmt.Sprintf(format, args...))
}

func (c *checks) warn(format string, args ...any) {
	fmt.Fprintf(c.out, "  note  %s\n", fmt.Sprintf(format, args...))
}

func (c *checks) fail(format string, args ...any) {
	fmt.Fprintf(c.out, "  FAIL  %s\n", fmt.Sprintf(format, args...))
	c.failed = true
}

// result returns an error if a check has failed.
func (c *checks) result() error {
	if c.failed {
		return errors.New("nothing was changed: see FAIL above")
	}
	return nil
}

// checkPrerequisites returns an error unless this is root, on a machine that runs systemd.
func checkPrerequisites() error {
	if os.Geteuid() != 0 {
		return errors.New("this takes root: run it with sudo")
	}
	return systemctl.Check()
}

// prepare checks the node and returns the plan.
func prepare(ctx context.Context, o *Options, given func(string) bool, earlier *installed, version string, out io.Writer) (*plan, error) {
	fmt.Fprintln(out, "checks:")
	c := &checks{out: out}
	if earlier != nil {
		o.inherit(earlier.Options, given)
		c.ok("edgehub %s is installed; this is %s", earlier.Version, version)
		c.checkUnmodified(earlier, o.Force)
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	k := c.checkKubelet(ctx)
	if k == nil {
		return nil, c.result()
	}
	runtime, err := engine.New(engine.Options{Address: k.Endpoint})
	if err != nil {
		return nil, err
	}
	defer runtime.Close()
	if !c.checkRuntime(ctx, k, runtime) {
		k.Endpoint = "" // the hub would wait for images that nobody pulls
	}
	if o.Kubeconfig == "" {
		o.Kubeconfig = k.Flag("kubeconfig", "/etc/kubernetes/kubelet.conf")
	}
	cloud := c.checkIdentity(o, k, earlier != nil)
	if cloud == nil {
		return nil, c.result()
	}
	o.readNetwork(ctx, cloud)
	p, err := newPlan(ctx, o, k, earlier, version)
	if err != nil {
		c.fail("%v", err)
		return nil, c.result()
	}
	p.cloud = cloud
	if earlier != nil && o.ProxyPort == plainPort && !given("proxy-port") {
		c.warn("the plain port %d stays open for the node's own programs; --proxy-port=0 closes it", plainPort)
	}
	if p.proxy {
		c.warn("kubelet is started with a proxy (%s): the hub gets the same, by %s", strings.Join(names(k.Proxy), ", "), envFile)
	}
	c.checkOnline(ctx, p)
	c.checkPorts(ctx, p, earlier)
	c.checkPods(ctx, p, earlier)
	c.checkMeshes(ctx, p)
	c.checkCNI(ctx, cniFolder, runtime)
	c.checkDisk(p)
	return p, c.result()
}

// checkUnmodified checks that nobody has changed the files of an earlier install.
func (c *checks) checkUnmodified(earlier *installed, force bool) {
	for _, path := range slices.Sorted(maps.Keys(earlier.Written)) {
		ok, err := files.Same(path, earlier.Written[path])
		switch {
		case path == envFile || path == kubeletEnvFile || ok && err == nil:
		case force:
			c.warn("%s was changed since edgehub wrote it; that is lost, by --force", path)
		default:
			c.fail("%s was changed since edgehub wrote it: put what is special on this node into %s, or say --force to lose the change", path, envFile)
		}
	}
}

// checkKubelet checks that kubelet runs as kubeadm sets it up. It returns nil if no further check is possible.
func (c *checks) checkKubelet(ctx context.Context) *kubelet.Kubelet {
	k, err := inspectKubelet(ctx)
	if err != nil {
		c.fail("%v", err)
		return nil
	}
	c.ok("kubelet runs (process %d)", k.PID)
	if err := kubelet.CheckUnit(ctx, kubeletEnvFile); err != nil {
		c.fail("%v", err)
	} else {
		c.ok("kubelet.service takes KUBELET_KUBECONFIG_ARGS, as kubeadm sets it up")
	}
	return k
}

// checkRuntime checks that there is a container runtime. It warns of one that only speaks CRI, and returns false then.
func (c *checks) checkRuntime(ctx context.Context, k *kubelet.Kubelet, runtime *engine.Engine) bool {
	socket := strings.TrimPrefix(k.Endpoint, "unix://")
	info, err := os.Stat(socket)
	switch {
	case err != nil:
		c.fail("container runtime: %v", err)
		return true
	case info.Mode()&os.ModeSocket == 0:
		c.fail("container runtime: %s is no socket", socket)
		return true
	}
	switch name, err := runtime.Name(ctx); {
	case err != nil:
		c.warn("the container runtime at %s does not say which it is: %v", k.Endpoint, err)
	case name != "containerd":
		c.warn("the container runtime at %s is %s, and edgehub knows containerd: the node and its pods live behind the hub, but which pods use it is not known, --cluster-ip=always is refused, no image is pulled ahead or held, and uninstall needs --force (docs/install.md#other-container-runtimes)", k.Endpoint, name)
		return false
	default:
		c.ok("container runtime at %s", k.Endpoint)
	}
	return true
}

// checkIdentity checks the node's identity. It returns nil if no further check is possible. A hub may
// be upgraded with an expired certificate, since the newer version may be the fix.
func (c *checks) checkIdentity(o *Options, k *kubelet.Kubelet, upgrade bool) *apiserver.Client {
	var servers []string
	for word := range strings.SplitSeq(o.ServerAddr, ",") {
		if word = strings.TrimSpace(word); word != "" {
			servers = append(servers, "https://"+strings.TrimPrefix(word, "https://"))
		}
	}
	cloud, config, err := apiserver.New(o.Kubeconfig, servers)
	if err == nil {
		err = rest.LoadTLSFiles(config)
	}
	if err != nil {
		c.fail("the node's kubeconfig: %v", err)
		return nil
	}
	if len(config.CertData) == 0 {
		c.fail("kubeconfig %s has no client certificate", o.Kubeconfig)
		return nil
	}
	pair, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		c.fail("client certificate in %s: %v", o.Kubeconfig, err)
		return nil
	}
	name, isNode := strings.CutPrefix(pair.Leaf.Subject.CommonName, "system:node:")
	if o.NodeName == "" {
		o.NodeName = name
	}
	override := k.NodeName(o.NodeName)
	switch {
	case !isNode || name != o.NodeName || override != o.NodeName:
		c.fail("the certificate in %s is %s's, kubelet calls the node %s, and the node name is to be %s: they have to agree",
			o.Kubeconfig, pair.Leaf.Subject.CommonName, override, o.NodeName)
		return nil
	case time.Now().After(pair.Leaf.NotAfter) && upgrade:
		c.warn("the client certificate of node %s has expired on %s; the hub is upgraded all the same", name, pair.Leaf.NotAfter.Format(time.DateOnly))
	case time.Now().After(pair.Leaf.NotAfter):
		c.fail("the client certificate of node %s has expired on %s: let kubelet get a new one first", name, pair.Leaf.NotAfter.Format(time.DateOnly))
	case config.CertFile == "" && o.BootstrapFile == "" && time.Until(pair.Leaf.NotAfter) < soon:
		c.warn("the client certificate of node %s expires in %v, on %s, and is part of %s, where nothing renews it: name there, as client-certificate and client-key, a file that kubelet renews (%s, if it rotates certificates), or start the hub with --bootstrap-file",
			name, time.Until(pair.Leaf.NotAfter).Round(time.Second), pair.Leaf.NotAfter.UTC().Format(time.RFC3339), o.Kubeconfig, k.Certificate())
	default:
		c.ok("%s is node %s's; its certificate is valid until %s", o.Kubeconfig, name, pair.Leaf.NotAfter.Format(time.DateOnly))
	}
	c.checkReadable("--kubeconfig", o.Kubeconfig)
	c.checkReadable("--bootstrap-file", o.BootstrapFile)
	return cloud
}

// soon is when a certificate that nothing renews is worth a word: one that kubeadm makes is good for
// a year.
const soon = 30 * 24 * time.Hour

// checkReadable checks that the hub can read a file: its unit hides some folders.
func (c *checks) checkReadable(flag, path string) {
	if path == "" {
		return
	}
	if _, err := os.Stat(path); err != nil {
		c.fail("%s: %v", flag, err)
	}
	for _, hidden := range []string{"/root/", "/home/", "/run/user/", "/tmp/", "/var/tmp/"} {
		if strings.HasPrefix(path, hidden) {
			c.fail("%s: the hub sees nothing of %s (ProtectHome=, PrivateTmp=): put %s into /etc/kubernetes", flag, hidden, path)
		}
	}
}

// checkOnline checks that the node is Ready. An upgrade of the hub alone does not need the apiserver.
func (c *checks) checkOnline(ctx context.Context, p *plan) {
	node, err := p.cloud.Node(ctx, p.options.NodeName)
	if err == nil {
		p.uid = node.UID
	}
	switch {
	case err == nil && apiserver.ReadyCondition(node).Status != corev1.ConditionTrue:
		c.fail("node %s is not Ready as it is: mend that first, for install waits until it is", p.options.NodeName)
	case err == nil:
		c.ok("the apiserver at %s answers, and says that node %s is Ready", strings.Join(p.cloud.Servers, ", "), p.options.NodeName)
	case !p.first && !p.kubelet:
		c.warn("the apiserver does not answer: the hub is upgraded, and whether the cloud sees the node Ready is not waited for")
	default:
		c.fail("the apiserver does not answer for node %s: %v", p.options.NodeName, err)
	}
}

// checkDisk checks that there is space for a full cache, and for a second binary during an upgrade.
func (c *checks) checkDisk(p *plan) {
	for dir, need := range map[string]uint64{
		p.config.RootDir:         uint64(p.config.CacheMaxBytes), //nolint:gosec // checked: at least 1 MiB
		stateDir:                 uint64(len(p.all[0].content)),
		filepath.Dir(binaryFile): uint64(len(p.all[0].content)),
	} {
		missing := files.MissingDirs(filepath.Join(dir, "file"))
		there := dir
		if len(missing) > 0 {
			there = filepath.Dir(missing[0])
		}
		var stat syscall.Statfs_t
		if err := syscall.Statfs(there, &stat); err != nil {
			c.fail("free space of %s: %v", there, err)
			continue
		}
		if free := stat.Bavail * uint64(stat.Bsize); free < need { //nolint:gosec // a block size is not negative
			c.fail("%s has %d MiB free, and up to %d MiB will be needed there", there, free>>20, need>>20)
		}
	}
}

// names returns the names of variables, without their values, in which there may be passwords.
func names(variables []string) []string {
	var out []string
	for _, variable := range variables {
		name, _, _ := strings.Cut(variable, "=")
		out = append(out, name)
	}
	return out
}
