package config

import (
	"fmt"
	"math"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/edgehub-io/edgehub/hub/kubeconfig"
	"github.com/edgehub-io/edgehub/proxy/transform"
	"github.com/edgehub-io/edgehub/proxy/upstream"
)

const (
	// minCacheBytes is the smallest cache, in bytes.
	minCacheBytes = 1 << 20
	// minBandwidth is the smallest bandwidth for images, in bytes a second. With less, a
	// manifest would take longer than a registry waits.
	minBandwidth = 1000
	// MinConnections is the lowest --max-connections: a node's own programs need fewer.
	MinConnections = 64
)

// problems collects the flags that have to change, each with the reason.
type problems []error

func (p *problems) add(flag, format string, args ...any) {
	*p = append(*p, fmt.Errorf("--%s: %s", flag, fmt.Sprintf(format, args...)))
}

func (p *problems) addIf(wrong bool, flag, format string, args ...any) {
	if wrong {
		p.add(flag, format, args...)
	}
}

func (c *Config) checkRequired(p *problems) {
	if c.NodeName == "" {
		p.add("node-name", "is required: the name that `kubectl get nodes` shows for this node")
	} else if reasons := validation.IsDNS1123Subdomain(c.NodeName); len(reasons) > 0 {
		p.add("node-name", "%q is no node name: %s", c.NodeName, reasons[0])
	}
	p.addIf(c.Balance != upstream.RoundRobin && c.Balance != upstream.Priority, "lb-mode", "%q is neither rr nor priority", c.Balance)
	p.addIf(c.Kubeconfig == "" && c.BootstrapFile == "", "kubeconfig", "is required: the node's credentials; or --bootstrap-file, with which the hub gets its own")
	p.addIf(c.RootDir == "", "root-dir", "is required")
	p.addIf((c.TLSCertFile == "") != (c.TLSKeyFile == ""), "tls-cert-file", "goes with --tls-private-key-file: give both or neither")
	p.addIf(c.ShutdownGrace < 0, "shutdown-grace-period", "%v is negative", c.ShutdownGrace)
}

func (c *Config) checkBounds(p *problems) {
	atLeast := func(flag string, got, least time.Duration, why string) {
		p.addIf(got < least, flag, "%v is less than %v: %s", got, least, why)
	}
	atLeast("upstream-loss-timeout", c.Limits.Loss, 500*time.Millisecond, "a busy apiserver that is well would be taken for lost")
	atLeast("upstream-probe-interval", c.Limits.Probe, 100*time.Millisecond, "an apiserver that comes back is busy enough")
	atLeast("upstream-idle-ping-interval", c.Limits.IdlePing, time.Second, "pings would be most of the traffic")
	atLeast("reconnect-jitter", c.ReconnectJitter, 0, "0 is none")
	atLeast("offline-authorization-ttl", c.OfflineAuthorizationTTL, 0, "0 lets nobody use kubelet's API without the cloud")
	atLeast("offline-token-grace", c.OfflineTokenGrace, 0, "0 is the whole outage")
	p.addIf(c.Limits.BadAnswers < 1, "upstream-bad-answers", "%d is less than 1", c.Limits.BadAnswers)
	p.addIf(c.CacheMaxBytes < minCacheBytes, "cache-max-bytes", "%d is less than %d (1 MiB): what the node itself reads would not fit", c.CacheMaxBytes, minCacheBytes)
	p.addIf(c.EventSpoolMaxCount < 0, "event-spool-max-count", "%d is negative; 0 keeps no events", c.EventSpoolMaxCount)
	p.addIf(c.EventSpoolMaxBytes < 0, "event-spool-max-bytes", "%d is negative; 0 keeps no events", c.EventSpoolMaxBytes)
}

func (c *Config) checkCallers(p *problems) {
	known := c.CallerCheck == CheckAuto || c.CallerCheck == CheckRequired || c.CallerCheck == CheckOff
	p.addIf(!known, "caller-check", "%q is none of auto, required and off", c.CallerCheck)
	p.addIf(c.MaxConnections < MinConnections, "max-connections", "%d is less than %d: kubelet and the other programs of the node would not find room", c.MaxConnections, MinConnections)
	for _, id := range c.NodeIdentityUsers {
		p.addIf(id >= math.MaxUint32, "node-identity-users", "%d is no user ID", id) // the largest value stands for no user
		c.IdentityUIDs = append(c.IdentityUIDs, uint32(id))
	}
}

func (c *Config) checkPulls(p *problems) {
	isSocket := filepath.IsAbs(strings.TrimPrefix(c.RuntimeEndpoint, "unix://"))
	p.addIf(c.RuntimeEndpoint != "" && !isSocket, "container-runtime-endpoint", "%q is no socket: write unix:///run/containerd/containerd.sock", c.RuntimeEndpoint)
	p.addIf(c.PullParallelism < 1, "image-pull-parallelism", "%d is less than 1", c.PullParallelism)
	p.addIf(c.PullMinFree < 0 || c.PullMinFree > 99, "image-pull-min-free", "%d is no percentage from 0 to 99", c.PullMinFree)
	p.addIf(c.PullJitter < 0, "image-pull-jitter", "%v is negative; 0 is none", c.PullJitter)
	rate, err := resource.ParseQuantity(c.PullBandwidth)
	switch {
	case err != nil:
		p.add("image-pull-bandwidth", "%q is no number of bytes: write 500k, 2Mi, or 0 for no limit", c.PullBandwidth)
	case rate.Sign() < 0, rate.Sign() > 0 && rate.Value() < minBandwidth:
		p.add("image-pull-bandwidth", "%s is less than %d bytes a second: nothing would ever be there; 0 is no limit", c.PullBandwidth, minBandwidth)
	}
	c.PullRate = rate.Value()
}

func (c *Config) checkAddresses(p *problems) {
	serveHost := p.host("bind-address", c.BindAddress)
	c.ProxyHost = p.host("bind-proxy-address", c.BindProxyAddress)
	c.ServeAddress = p.address(serveHost, "serve-port", c.ServePort, 1)
	c.ProxyAddress = p.address(c.ProxyHost, "proxy-port", c.ProxyPort, 0)
	c.SecureAddress = p.address(c.ProxyHost, "proxy-secure-port", c.ProxySecurePort, 0)
	p.addIf(serveHost.IsValid() && !serveHost.IsLoopback() && c.ServeClientCAFile == "",
		"bind-address", "%s is not on loopback, and whoever reaches the node's HTTP API may upgrade its pods: add --serve-client-ca-file=FILE with the CAs of the client certificates that may, or leave --bind-address out", serveHost)
	p.addIf(c.ProxyHost.IsValid() && !c.ProxyHost.IsLoopback() && c.ProxyPort != 0,
		"bind-proxy-address", "%s is not on loopback, and --proxy-port lends the node's identity to whoever reaches it: leave --proxy-port out, to offer --proxy-secure-port alone", c.ProxyHost)
	p.addIf(c.ProxyPort == 0 && c.ProxySecurePort == 0, "proxy-port", "and --proxy-secure-port are both 0: nothing would be offered to the node's clients")
	for _, clash := range [][2]string{{c.ServeAddress, c.ProxyAddress}, {c.ServeAddress, c.SecureAddress}, {c.ProxyAddress, c.SecureAddress}} {
		if clash[0] != "" && clash[0] == clash[1] {
			p.add("serve-port", "--proxy-port and --proxy-secure-port have to differ: two of them are %s", clash[0])
			break
		}
	}
}

// checkPods validates how pods reach the hub.
func (c *Config) checkPods(p *problems) {
	for _, name := range c.Transforms {
		p.addIf(!slices.Contains(transform.Names(), name), "transforms", "%q is unknown: there are %s", name, strings.Join(transform.Names(), ", "))
	}
	p.accounts("service-topology-accounts", c.ServiceTopologyAccounts)
	p.accounts("service-proxy-accounts", c.ServiceProxyAccounts)
	switch c.ClusterIP {
	case ClusterIPOffline:
	case ClusterIPAlways:
		p.addIf(c.DummyIfIP == "", "cluster-ip", "always needs --dummy-if-ip, where pods reach the hub")
		p.addIf(c.RuntimeEndpoint == "", "cluster-ip", "always needs --container-runtime-endpoint: only the container runtime knows which pods trust the hub")
		for _, name := range []string{transform.APIServerService, transform.RootCA} {
			p.addIf(!slices.Contains(c.Transforms, name), "cluster-ip", "always needs %s in --transforms, without which pods that start do not trust the hub", name)
		}
	default:
		p.add("cluster-ip", "%q is neither offline nor always", c.ClusterIP)
	}
	for _, name := range c.APIServerNames {
		p.addIf(c.DummyIfIP == "", "apiserver-names", "needs --dummy-if-ip, where pods reach the hub")
		labels := strings.Split(name, ".")
		p.addIf(len(validation.IsDNS1123Subdomain(name)) > 0 || len(labels) < 3 || labels[2] != "svc", "apiserver-names",
			"%q is no name of a Service: write SERVICE.NAMESPACE.svc or SERVICE.NAMESPACE.svc.DOMAIN; the hub has no certificate for names outside of the cluster", name)
	}
	if c.DummyIfIP == "" {
		return
	}
	p.addIf(c.ProxySecurePort == 0, "dummy-if-ip", "needs --proxy-secure-port, through which pods use the hub")
	for word := range strings.SplitSeq(c.DummyIfIP, ",") {
		address := p.host("dummy-if-ip", strings.TrimSpace(word)).Unmap()
		if !address.IsValid() {
			continue
		}
		p.addIf(address.IsLoopback() || address.IsUnspecified() || address.IsMulticast(), "dummy-if-ip",
			"%s is no address at which a pod could reach this node: the usual ones are 169.254.2.1 and fd00::2:1", address)
		p.addIf(slices.ContainsFunc(c.PodAddresses, func(a netip.Addr) bool { return a.Is4() == address.Is4() }), "dummy-if-ip",
			"has two addresses of the family of %s: a Service can name one", address)
		c.PodAddresses = append(c.PodAddresses, address)
	}
}

// accounts validates the names of service accounts.
func (p *problems) accounts(flag string, names []string) {
	for _, name := range names {
		namespace, account, ok := strings.Cut(name, "/")
		p.addIf(!ok || namespace == "" || account == "" || strings.ContainsAny(account, "/:"), flag, "%q is no service account: write NAMESPACE/NAME", name)
	}
}

// host returns the zero Addr if the flag's value is invalid.
func (p *problems) host(flag, value string) netip.Addr {
	ip, err := netip.ParseAddr(value)
	p.addIf(err != nil, flag, "%q is no IP address", value)
	return ip
}

// address returns host:port, or "" for port 0 and an invalid host.
func (p *problems) address(host netip.Addr, flag string, port, lowest int) string {
	p.addIf(port < lowest || port > 65535, flag, "%d is not a port from %d to 65535", port, lowest)
	if port == 0 || !host.IsValid() {
		return ""
	}
	return netip.AddrPortFrom(host, uint16(port)).String()
}

// checkServers needs the results of checkAddresses, since no apiserver may be the hub itself.
func (c *Config) checkServers(p *problems) {
	for word := range strings.SplitSeq(c.ServerAddr, ",") {
		if word = strings.TrimSpace(word); word == "" {
			continue
		}
		server, err := kubeconfig.ParseServer(word)
		if err == nil {
			err = c.CheckLoop(server)
		}
		if err != nil {
			p.add("server-addr", "%v", err)
			continue
		}
		c.Servers = append(c.Servers, server)
	}
}
