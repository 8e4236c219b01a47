package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/edgehub-io/edgehub/hub/kubeconfig"
	"github.com/edgehub-io/edgehub/proxy"
)

// minCacheBytes is the smallest cache, in bytes.
const minCacheBytes = 1 << 20

// minBandwidth is the smallest bandwidth for images, in bytes a second: below, the
// answer to a request for a manifest takes longer than a registry waits.
const minBandwidth = 1000

// CallerCheck says whether the programs that use the plain port are looked at.
type CallerCheck string

// The values of --caller-check.
const (
	CheckAuto     CallerCheck = "auto"     // where the kernel can tell, which is tried at start
	CheckRequired CallerCheck = "required" // or there is no start
	CheckOff      CallerCheck = "off"
)

// Config is what Options say, checked and typed. It is not changed after New.
type Config struct {
	NodeName   string
	Servers    []*url.URL // empty: the kubeconfig's
	Balance    proxy.Balance
	Kubeconfig string // not read where there is a BootstrapFile
	// BootstrapFile is a kubeconfig with which the hub asks for a certificate of its
	// own, or empty.
	BootstrapFile string
	RootDir       string

	ServeAddress  string // host:port of the node's HTTP API
	ProxyAddress  string // host:port of the plain proxy port, or empty
	SecureAddress string // host:port of the TLS proxy port, or empty
	ProxyHost     netip.Addr

	ServeToContainers bool   // on loopback
	ServeClientCAFile string // or empty: the node's HTTP API is plain, and on loopback

	TLSCertFile   string // with TLSKeyFile, or empty
	TLSKeyFile    string
	ClientCAFile  string // or empty
	ShutdownGrace time.Duration

	CallerCheck       CallerCheck
	NodeIdentityUsers []uint32
	MaxConnections    int

	Limits          proxy.Limits
	ReconnectJitter time.Duration // of watches, after the cloud is back

	CacheMaxBytes           int64
	CacheKeyFile            string        // or empty: values are not encrypted
	OfflineTokenGrace       time.Duration // 0: the whole outage
	OfflineAuthorizationTTL time.Duration // 0: nobody uses kubelet's API without the cloud
	EventSpoolMaxCount      int
	EventSpoolMaxBytes      int64

	RuntimeEndpoint   string // or empty: no images are pulled
	RegistryConfigDir string // or empty: containerd's
	KubeletRootDir    string // or empty
	PullParallelism   int
	PullBandwidth     int64 // bytes a second, or 0
	PullMinFree       int   // percent
	PullJitter        time.Duration
}

// Config checks o. Its error names every flag that has to change.
func (o *Options) Config() (*Config, error) {
	c := &Config{
		NodeName:          o.NodeName,
		Balance:           proxy.Balance(o.LBMode),
		Kubeconfig:        o.Kubeconfig,
		BootstrapFile:     o.BootstrapFile,
		RootDir:           o.RootDir,
		ServeClientCAFile: o.ServeClientCAFile,
		ServeToContainers: o.ServeToContainers,

		TLSCertFile:   o.TLSCertFile,
		TLSKeyFile:    o.TLSKeyFile,
		ClientCAFile:  o.ClientCAFile,
		ShutdownGrace: o.ShutdownGrace,

		CallerCheck:    CallerCheck(o.CallerCheck),
		MaxConnections: o.MaxConnections,

		Limits: proxy.Limits{
			Loss: o.LossTimeout, Probe: o.ProbeInterval, IdlePing: o.IdlePingInterval, BadAnswers: o.BadAnswers,
		},
		ReconnectJitter:         o.ReconnectJitter,
		CacheMaxBytes:           o.CacheMaxBytes,
		CacheKeyFile:            o.CacheKeyFile,
		OfflineTokenGrace:       o.OfflineTokenGrace,
		OfflineAuthorizationTTL: o.OfflineAuthorizationTTL,
		EventSpoolMaxCount:      o.EventSpoolMaxCount,
		EventSpoolMaxBytes:      o.EventSpoolMaxBytes,
		RuntimeEndpoint:         o.RuntimeEndpoint,
		RegistryConfigDir:       o.RegistryConfigDir,
		KubeletRootDir:          o.KubeletRootDir,
		PullParallelism:         o.PullParallelism,
		PullMinFree:             o.PullMinFree,
		PullJitter:              o.PullJitter,
	}
	var errs []error
	bad := func(flag, format string, args ...any) {
		errs = append(errs, fmt.Errorf("--%s: %s", flag, fmt.Sprintf(format, args...)))
	}

	if o.NodeName == "" {
		bad("node-name", "is required: the name that `kubectl get nodes` shows for this node")
	} else if reasons := validation.IsDNS1123Subdomain(o.NodeName); len(reasons) > 0 {
		bad("node-name", "%q is no node name: %s", o.NodeName, reasons[0])
	}
	if c.Balance != proxy.RoundRobin && c.Balance != proxy.Priority {
		bad("lb-mode", "%q is neither rr nor priority", o.LBMode)
	}
	if o.Kubeconfig == "" && o.BootstrapFile == "" {
		bad("kubeconfig", "is required: the node's credentials; or --bootstrap-file, with which the hub gets its own")
	}
	if o.RootDir == "" {
		bad("root-dir", "is required")
	}
	if (o.TLSCertFile == "") != (o.TLSKeyFile == "") {
		bad("tls-cert-file", "goes with --tls-private-key-file: give both or neither")
	}
	if o.ShutdownGrace < 0 {
		bad("shutdown-grace-period", "%v is negative", o.ShutdownGrace)
	}

	o.checkBounds(bad)
	c.NodeIdentityUsers = o.checkCallers(bad)
	c.PullBandwidth = o.checkPulls(bad)

	address := func(hostFlag, host, portFlag string, port, lowest int) string {
		ip, err := netip.ParseAddr(host)
		if err != nil {
			bad(hostFlag, "%q is no IP address", host)
		}
		if port < lowest || port > 65535 {
			bad(portFlag, "%d is not a port from %d to 65535", port, lowest)
		}
		if port == 0 || err != nil {
			return ""
		}
		return netip.AddrPortFrom(ip, uint16(port)).String()
	}
	c.ServeAddress = address("bind-address", o.BindAddress, "serve-port", o.ServePort, 1)
	c.ProxyAddress = address("bind-proxy-address", o.BindProxyAddress, "proxy-port", o.ProxyPort, 0)
	c.SecureAddress = address("bind-proxy-address", o.BindProxyAddress, "proxy-secure-port", o.ProxySecurePort, 0)
	c.ProxyHost, _ = netip.ParseAddr(o.BindProxyAddress)
	if ip, err := netip.ParseAddr(o.BindAddress); err == nil && !ip.IsLoopback() && o.ServeClientCAFile == "" {
		bad("bind-address", "%s is not on loopback, and whoever reaches the node's HTTP API may upgrade its pods: add --serve-client-ca-file=FILE with the CAs of the client certificates that may, or leave --bind-address out", ip)
	}
	if c.ProxyHost.IsValid() && !c.ProxyHost.IsLoopback() && o.ProxyPort != 0 {
		bad("bind-proxy-address", "%s is not on loopback, and --proxy-port lends the node's identity to whoever reaches it: add --proxy-port=0 to offer --proxy-secure-port alone", c.ProxyHost)
	}
	if o.ProxyPort == 0 && o.ProxySecurePort == 0 {
		bad("proxy-port", "and --proxy-secure-port are both 0: nothing would be offered to the node's clients")
	}
	for _, clash := range [][2]string{{c.ServeAddress, c.ProxyAddress}, {c.ServeAddress, c.SecureAddress}, {c.ProxyAddress, c.SecureAddress}} {
		if clash[0] != "" && clash[0] == clash[1] {
			bad("serve-port", "--proxy-port and --proxy-secure-port have to differ: two of them are %s", clash[0])
		}
	}

	for _, word := range splitList(o.ServerAddr) {
		server, err := kubeconfig.ParseServer(word)
		if err == nil {
			err = c.CheckLoop(server)
		}
		if err != nil {
			bad("server-addr", "%v", err)
			continue
		}
		c.Servers = append(c.Servers, server)
	}
	if err := dedupe(errs); err != nil {
		return nil, err
	}
	return c, nil
}

// checkBounds calls bad for each bound that makes no sense.
func (o *Options) checkBounds(bad func(flag, format string, args ...any)) {
	atLeast := func(flag string, got, least time.Duration, why string) {
		if got < least {
			bad(flag, "%v is less than %v: %s", got, least, why)
		}
	}
	atLeast("upstream-loss-timeout", o.LossTimeout, 500*time.Millisecond, "a busy apiserver that is well would be taken for lost")
	atLeast("upstream-probe-interval", o.ProbeInterval, 100*time.Millisecond, "an apiserver that comes back is busy enough")
	atLeast("upstream-idle-ping-interval", o.IdlePingInterval, time.Second, "pings would be most of the traffic")
	atLeast("reconnect-jitter", o.ReconnectJitter, 0, "0 is none")
	atLeast("offline-authorization-ttl", o.OfflineAuthorizationTTL, 0, "0 lets nobody use kubelet's API without the cloud")
	atLeast("offline-token-grace", o.OfflineTokenGrace, 0, "0 is the whole outage")
	if o.BadAnswers < 1 {
		bad("upstream-bad-answers", "%d is less than 1", o.BadAnswers)
	}
	if o.CacheMaxBytes < minCacheBytes {
		bad("cache-max-bytes", "%d is less than %d (1 MiB): what the node itself reads would not fit", o.CacheMaxBytes, minCacheBytes)
	}
	if o.EventSpoolMaxCount < 0 {
		bad("event-spool-max-count", "%d is negative; 0 keeps no events", o.EventSpoolMaxCount)
	}
	if o.EventSpoolMaxBytes < 0 {
		bad("event-spool-max-bytes", "%d is negative; 0 keeps no events", o.EventSpoolMaxBytes)
	}
}

// MinConnections is what a node's own programs need, with room.
const MinConnections = 64

// checkCallers calls bad for what makes no sense for telling callers apart, and
// returns the users who may borrow the node's identity.
func (o *Options) checkCallers(bad func(flag, format string, args ...any)) []uint32 {
	switch CallerCheck(o.CallerCheck) {
	case CheckAuto, CheckRequired, CheckOff:
	default:
		bad("caller-check", "%q is none of auto, required and off", o.CallerCheck)
	}
	if o.MaxConnections < MinConnections {
		bad("max-connections", "%d is less than %d: kubelet and the other programs of the node would not find room", o.MaxConnections, MinConnections)
	}
	var users []uint32
	for _, id := range o.NodeIdentityUsers {
		if id >= math.MaxUint32 { // which stands for no user
			bad("node-identity-users", "%d is no user ID", id)
		}
		users = append(users, uint32(id))
	}
	return users
}

// checkPulls calls bad for what makes no sense for pulling images, and returns the
// bandwidth in bytes a second.
func (o *Options) checkPulls(bad func(flag, format string, args ...any)) int64 {
	if e := o.RuntimeEndpoint; e != "" && !filepath.IsAbs(strings.TrimPrefix(e, "unix://")) {
		bad("container-runtime-endpoint", "%q is no socket: write unix:///run/containerd/containerd.sock", e)
	}
	if o.PullParallelism < 1 {
		bad("image-pull-parallelism", "%d is less than 1", o.PullParallelism)
	}
	if o.PullMinFree < 0 || o.PullMinFree > 99 {
		bad("image-pull-min-free", "%d is no percentage from 0 to 99", o.PullMinFree)
	}
	if o.PullJitter < 0 {
		bad("image-pull-jitter", "%v is negative; 0 is none", o.PullJitter)
	}
	rate, err := resource.ParseQuantity(o.PullBandwidth)
	switch {
	case err != nil:
		bad("image-pull-bandwidth", "%q is no number of bytes: write 500k, 2Mi, or 0 for no limit", o.PullBandwidth)
	case rate.Sign() < 0, rate.Sign() > 0 && rate.Value() < minBandwidth:
		bad("image-pull-bandwidth", "%s is less than %d bytes a second: nothing would ever be there; 0 is no limit", o.PullBandwidth, minBandwidth)
	}
	return rate.Value()
}

// dedupe joins errs, each text once: two ports share one address flag.
func dedupe(errs []error) error {
	seen := map[string]bool{}
	var out []error
	for _, err := range errs {
		if !seen[err.Error()] {
			seen[err.Error()] = true
			out = append(out, err)
		}
	}
	return errors.Join(out...)
}

func splitList(list string) []string {
	var words []string
	for word := range strings.SplitSeq(list, ",") {
		if word = strings.TrimSpace(word); word != "" {
			words = append(words, word)
		}
	}
	return words
}

// PKIDir is where the hub keeps certificates of its own.
func (c *Config) PKIDir() string { return filepath.Join(c.RootDir, "pki") }

// CheckLoop refuses an apiserver that is the hub itself: kubelet's own
// kubeconfig, once it points at the hub, is easily handed to it.
func (c *Config) CheckLoop(server *url.URL) error {
	host := server.Hostname()
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if own := net.JoinHostPort(host, server.Port()); own == c.ProxyAddress || own == c.SecureAddress {
		return fmt.Errorf("%s is this hub itself: name the apiserver in the cloud", server.Host)
	}
	return nil
}
