package install

import (
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/edgehub-io/edgehub/hub/config"
)

// Options are the options of an install. An upgrade keeps those that it is not given.
type Options struct {
	NodeName      string `json:"nodeName,omitempty"`
	ServerAddr    string `json:"serverAddr,omitempty"`
	Kubeconfig    string `json:"kubeconfig,omitempty"`
	BootstrapFile string `json:"bootstrapFile,omitempty"`
	ProxyPort     int    `json:"proxyPort"`
	KubeletOnly   bool   `json:"kubeletOnly,omitempty"`
	DummyIfName   string `json:"dummyIfName,omitempty"`
	DummyIfIP     string `json:"dummyIfIP,omitempty"`

	PodCIDRs   []string `json:"podCIDRs,omitempty"`   // of the Node
	ServiceIPs []string `json:"serviceIPs,omitempty"` // of default/kubernetes

	Extra []string `json:"-"` // flags of the hub, kept in the environment file

	Binary string        `json:"-"` // the program to install; empty: this one
	Wait   time.Duration `json:"-"`
	DryRun bool          `json:"-"`
	Force  bool          `json:"-"`
}

// plainPort is where the hub offers plain HTTP, if it does.
const plainPort = 10261

// DefaultWait is the default of how long a node may take to be Ready again.
const DefaultWait = 2 * time.Minute

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{DummyIfName: "edgehub-dummy0", Wait: DefaultWait}
}

// AddFlags binds o to fs.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.DryRun, "dry-run", false, "look at the node, say what would be written and run, and change nothing")
	fs.DurationVar(&o.Wait, "wait", o.Wait, "how long hub and node may take to be ready before everything is put back")
	fs.BoolVar(&o.Force, "force", false, "also replace files of an earlier install that somebody has changed since")
	fs.StringVar(&o.Binary, "binary", "", "program that is installed; empty: this very one")
	fs.StringVar(&o.NodeName, "node-name", "", "name of this node; empty: the one in kubelet's certificate")
	fs.StringVar(&o.ServerAddr, "server-addr", "", "apiservers, as a comma list of https://HOST:PORT; empty: the one that kubelet's kubeconfig names")
	fs.StringVar(&o.Kubeconfig, "kubeconfig", "", "the node's own kubeconfig; empty: the one that kubelet uses now")
	fs.StringVar(&o.BootstrapFile, "bootstrap-file", "", "bootstrap kubeconfig, for a client certificate of the hub's own; empty: the hub uses kubelet's")
	fs.BoolVar(&o.KubeletOnly, "kubelet-only", false, "lead only kubelet to the hub: pods go on using the apiserver, and what runs in them does not survive a reboot without the cloud")
	fs.StringVar(&o.DummyIfName, "dummy-if-name", o.DummyIfName, "dummy interface, which the install sets up, with the addresses at which pods reach the hub")
	fs.StringVar(&o.DummyIfIP, "dummy-if-ip", "", "these addresses, as a comma list; empty: 169.254.2.1 and, where the node has IPv6, fd00::2:1")
	fs.IntVar(&o.ProxyPort, "proxy-port", o.ProxyPort, "10261: also offer the apiserver over plain HTTP to the node's own programs, which cannot tell the hub there from any other program; 0: do not")
}

// inherit keeps the options of an earlier install whose flags are not given now.
func (o *Options) inherit(earlier Options, given func(string) bool) {
	for name, take := range map[string]func(){
		"node-name":      func() { o.NodeName = earlier.NodeName },
		"server-addr":    func() { o.ServerAddr = earlier.ServerAddr },
		"kubeconfig":     func() { o.Kubeconfig = earlier.Kubeconfig },
		"bootstrap-file": func() { o.BootstrapFile = earlier.BootstrapFile },
		"proxy-port":     func() { o.ProxyPort = earlier.ProxyPort },
		"kubelet-only":   func() { o.KubeletOnly = earlier.KubeletOnly },
		"dummy-if-name":  func() { o.DummyIfName = earlier.DummyIfName },
		"dummy-if-ip":    func() { o.DummyIfIP = earlier.DummyIfIP },
	} {
		if !given(name) {
			take()
		}
	}
	o.PodCIDRs, o.ServiceIPs = earlier.PodCIDRs, earlier.ServiceIPs
}

func (o *Options) validate() error {
	var errs []error
	if o.ProxyPort != plainPort && o.ProxyPort != 0 {
		errs = append(errs, fmt.Errorf("--proxy-port: %d is neither %d nor 0 (none)", o.ProxyPort, plainPort))
	}
	if !interfaceName.MatchString(o.DummyIfName) {
		errs = append(errs, fmt.Errorf("--dummy-if-name: %q is no name of an interface: up to 15 letters, digits, dots, dashes and underscores", o.DummyIfName))
	}
	if o.Wait <= 0 {
		errs = append(errs, fmt.Errorf("--wait: %v is no time to wait", o.Wait))
	}
	errs = append(errs, validateUnitArgs(o.Extra...))
	return errors.Join(errs...)
}

// hubArgs are the flags in the unit. endpoint is containerd's; empty: there is none.
func (o *Options) hubArgs(endpoint, kubeletRoot string) []string {
	args := []string{"--node-name=" + o.NodeName, "--kubeconfig=" + o.Kubeconfig}
	add := func(flag, value string) {
		if value != "" {
			args = append(args, flag+"="+value)
		}
	}
	add("--server-addr", o.ServerAddr)
	add("--bootstrap-file", o.BootstrapFile)
	args = append(args, "--container-runtime-endpoint="+endpoint)
	add("--kubelet-root-dir", kubeletRoot)
	if !o.KubeletOnly {
		add("--dummy-if-ip", o.podAddresses())
	}
	return append(args, "--proxy-port="+strconv.Itoa(o.ProxyPort))
}

// interfaceName is the form of names that the kernel and `ip` take.
var interfaceName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}$`)

// podAddresses are the addresses at which pods reach the hub: those of yurthub, by default.
func (o *Options) podAddresses() string {
	if o.DummyIfIP != "" {
		return o.DummyIfIP
	}
	const v4, v6 = "169.254.2.1", "fd00::2:1"
	for _, interfaces := range []string{"all", "default"} { // the latter are those that are yet to come
		disabled, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + interfaces + "/disable_ipv6")
		if err != nil || strings.TrimSpace(string(disabled)) != "0" {
			return v4
		}
	}
	return v4 + "," + v6
}

// hubConfig returns the hub's configuration for these flags.
func hubConfig(args []string) (*config.Config, error) {
	options := config.NewOptions()
	fs := pflag.NewFlagSet("edgehub", pflag.ContinueOnError)
	fs.Usage = func() {}
	fs.ParseErrorsAllowlist.UnknownFlags = true // those of logging are not the hub's
	options.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		return nil, fmt.Errorf("flags of the hub: %w", err)
	}
	c, err := options.Config()
	if err != nil {
		return nil, fmt.Errorf("flags of the hub: %w", err)
	}
	return c, nil
}

// dummyIf returns the name of the interface with addresses for pods, or "".
func (o *Options) dummyIf(c *config.Config) string {
	if len(c.PodAddresses) == 0 {
		return ""
	}
	return o.DummyIfName
}

// sockets returns the addresses on which the hub listens.
func sockets(c *config.Config) []string {
	all := append([]string{c.ProxyAddress, c.ServeAddress, c.SecureAddress}, c.PodServers()...)
	return slices.DeleteFunc(all, func(a string) bool { return a == "" })
}

// kubeletServer returns the URL at which kubelet reaches the hub.
func kubeletServer(c *config.Config) (string, error) {
	host, port, err := net.SplitHostPort(c.SecureAddress)
	if err != nil {
		return "", errors.New("kubelet reaches the hub over TLS, and the hub's flags turn that port off: leave --proxy-secure-port=0 out")
	}
	if ip := net.ParseIP(host); ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "https://" + net.JoinHostPort(host, port), nil
}
