package config

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/edgehub-io/edgehub/proxy"
)

// Options are the hub's flags as they were given. Names, ports and defaults are
// yurthub's where the meaning is the same.
type Options struct {
	NodeName      string
	ServerAddr    string
	LBMode        string
	Kubeconfig    string
	BootstrapFile string
	RootDir       string
	BindAddress   string
	ServePort     int

	ServeClientCAFile string
	ServeToContainers bool

	BindProxyAddress string
	ProxyPort        int
	ProxySecurePort  int
	TLSCertFile      string
	TLSKeyFile       string
	ClientCAFile     string

	CallerCheck       string
	NodeIdentityUsers []uint
	MaxConnections    int

	ShutdownGrace time.Duration

	LossTimeout      time.Duration
	ProbeInterval    time.Duration
	IdlePingInterval time.Duration
	BadAnswers       int
	ReconnectJitter  time.Duration

	CacheMaxBytes           int64
	CacheKeyFile            string
	OfflineTokenGrace       time.Duration
	OfflineAuthorizationTTL time.Duration
	EventSpoolMaxCount      int
	EventSpoolMaxBytes      int64

	RuntimeEndpoint   string
	RegistryConfigDir string
	KubeletRootDir    string
	PullParallelism   int
	PullBandwidth     string
	PullMinFree       int
	PullJitter        time.Duration
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{
		LBMode:           string(proxy.RoundRobin),
		Kubeconfig:       "/etc/kubernetes/kubelet.conf",
		RootDir:          "/var/lib/edgehub",
		BindAddress:      "127.0.0.1",
		ServePort:        10267,
		BindProxyAddress: "127.0.0.1",
		ProxyPort:        10261,
		ProxySecurePort:  10268,
		ShutdownGrace:    5 * time.Second,

		CallerCheck:       string(CheckAuto),
		NodeIdentityUsers: []uint{0},
		MaxConnections:    4096,

		LossTimeout:      proxy.DefaultLoss,
		ProbeInterval:    proxy.DefaultProbe,
		IdlePingInterval: proxy.DefaultIdlePing,
		BadAnswers:       proxy.DefaultBadAnswers,
		ReconnectJitter:  2 * time.Second,

		CacheMaxBytes: 256 << 20,
		// Long enough to find out during a working day's outage why a pod does not run; a
		// user whose access is taken away in the cloud meanwhile keeps it no longer.
		OfflineAuthorizationTTL: 24 * time.Hour,
		EventSpoolMaxCount:      1000,
		EventSpoolMaxBytes:      4 << 20,

		RuntimeEndpoint: "unix:///run/containerd/containerd.sock",
		KubeletRootDir:  "/var/lib/kubelet",
		PullParallelism: 1,
		PullBandwidth:   "0",
		PullMinFree:     20,
		PullJitter:      10 * time.Second,
	}
}

// AddFlags binds o to fs; the values o has now are the defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.NodeName, "node-name", o.NodeName, "name of this node in the cluster (required)")
	fs.StringVar(&o.ServerAddr, "server-addr", o.ServerAddr, "apiservers, as a comma list of https://HOST:PORT; empty: the server that --kubeconfig names")
	fs.StringVar(&o.LBMode, "lb-mode", o.LBMode, "order in which several apiservers are tried: rr (in turn) or priority (the first that answers)")
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig with the node's credentials; read again when it, or a file it names, changes")
	fs.StringVar(&o.BootstrapFile, "bootstrap-file", o.BootstrapFile, "kubeconfig with a bootstrap token (kubeadm token create), with which the hub gets the node a client certificate of the hub's own, kept under --root-dir and renewed there; --kubeconfig is not read then. The file may be replaced while the hub runs: the server and CA in it count as long as it is there, and its token when the certificate has expired. Empty: the hub uses the credentials in --kubeconfig")
	fs.StringVar(&o.RootDir, "root-dir", o.RootDir, "directory for what the hub keeps")

	fs.StringVar(&o.BindAddress, "bind-address", o.BindAddress, "IP address of the node's HTTP API")
	fs.IntVar(&o.ServePort, "serve-port", o.ServePort, "port of the node's HTTP API: health, metrics, pods and their upgrade")
	fs.StringVar(&o.ServeClientCAFile, "serve-client-ca-file", o.ServeClientCAFile, "CAs of the client certificates that may use the node's HTTP API, which is offered over TLS then; required where --bind-address is not on loopback")
	fs.BoolVar(&o.ServeToContainers, "serve-to-containers", o.ServeToContainers, "let pods on the host's network, and other containers, use the node's HTTP API on loopback; without, health and metrics are all they get")
	fs.StringVar(&o.BindProxyAddress, "bind-proxy-address", o.BindProxyAddress, "IP address of both proxy ports")
	fs.IntVar(&o.ProxyPort, "proxy-port", o.ProxyPort, "port on which the apiserver is offered over plain HTTP; it lends the node's identity to callers without credentials; 0: off")
	fs.IntVar(&o.ProxySecurePort, "proxy-secure-port", o.ProxySecurePort, "port on which the apiserver is offered over TLS, to callers with a token or the node's client certificate; 0: off")
	fs.StringVar(&o.TLSCertFile, "tls-cert-file", o.TLSCertFile, "certificate of the ports with TLS; empty: a self-signed one, kept under --root-dir")
	fs.StringVar(&o.TLSKeyFile, "tls-private-key-file", o.TLSKeyFile, "private key for --tls-cert-file")
	fs.StringVar(&o.ClientCAFile, "client-ca-file", o.ClientCAFile, "CAs of the client certificates that the TLS port accepts; empty: the CA in --kubeconfig")
	fs.StringVar(&o.CallerCheck, "caller-check", o.CallerCheck, "whether --proxy-port lends the node's identity only to programs of --node-identity-users outside of containers: required, auto (where the hub can tell, and it warns where not) or off")
	fs.UintSliceVar(&o.NodeIdentityUsers, "node-identity-users", o.NodeIdentityUsers, "IDs of the users whose programs get the node's identity, as a comma list")
	fs.IntVar(&o.MaxConnections, "max-connections", o.MaxConnections, "how many connections each port may have open; the last quarter is for the node's own programs")
	fs.DurationVar(&o.ShutdownGrace, "shutdown-grace-period", o.ShutdownGrace, "how long a stop waits for requests to end; watches are ended at once")

	fs.DurationVar(&o.LossTimeout, "upstream-loss-timeout", o.LossTimeout, "an apiserver that owes an answer and sends nothing for so long, not even the answer to a ping, is lost; at least twice the slowest round trip")
	fs.DurationVar(&o.ProbeInterval, "upstream-probe-interval", o.ProbeInterval, "time between two attempts to reach an apiserver that is lost")
	fs.DurationVar(&o.IdlePingInterval, "upstream-idle-ping-interval", o.IdlePingInterval, "silence after which a connection with nothing but open watches is pinged; some 200 bytes each time")
	fs.IntVar(&o.BadAnswers, "upstream-bad-answers", o.BadAnswers, "how many answers 500, 502, 503, 504 or 429 within a minute make the hub ask for the node's Lease; an apiserver that does not answer that counts as lost")
	fs.DurationVar(&o.ReconnectJitter, "reconnect-jitter", o.ReconnectJitter, "watches are resumed spread over so long after the cloud is back, so that a thousand nodes do not come at once")

	fs.Int64Var(&o.CacheMaxBytes, "cache-max-bytes", o.CacheMaxBytes, "how much the cache may hold, in bytes; what was not read for longest goes first, never what the node itself reads")
	fs.StringVar(&o.CacheKeyFile, "cache-encryption-key-file", o.CacheKeyFile, "file with the key that cached objects are encrypted with; empty: they are not")
	fs.DurationVar(&o.OfflineTokenGrace, "offline-token-grace", o.OfflineTokenGrace, "how long after its expiry a token is good for reading the cache while the cloud is away; 0: as long as it is away")
	fs.DurationVar(&o.OfflineAuthorizationTTL, "offline-authorization-ttl", o.OfflineAuthorizationTTL, "how long after the apiserver allowed it a user may go on using kubelet's own API (logs, exec, metrics) while the cloud is away; 0: not at all")
	fs.IntVar(&o.EventSpoolMaxCount, "event-spool-max-count", o.EventSpoolMaxCount, "how many events are kept for the cloud while it is away")
	fs.Int64Var(&o.EventSpoolMaxBytes, "event-spool-max-bytes", o.EventSpoolMaxBytes, "how many bytes of events are kept for the cloud while it is away")

	fs.StringVar(&o.RuntimeEndpoint, "container-runtime-endpoint", o.RuntimeEndpoint, "containerd's socket, through which images are pulled ahead of an upgrade; empty: none are")
	fs.StringVar(&o.RegistryConfigDir, "registry-config-dir", o.RegistryConfigDir, "folder with a hosts.toml for each registry: mirrors, CAs; empty: the one that containerd uses")
	fs.StringVar(&o.KubeletRootDir, "kubelet-root-dir", o.KubeletRootDir, "kubelet's --root-dir, where the node's own credentials for registries are; empty: they are not used")
	fs.IntVar(&o.PullParallelism, "image-pull-parallelism", o.PullParallelism, "how many images are pulled ahead at a time")
	fs.StringVar(&o.PullBandwidth, "image-pull-bandwidth", o.PullBandwidth, "how many bytes a second images are pulled ahead with, all together, such as 500k or 2Mi; 0: no limit")
	fs.IntVar(&o.PullMinFree, "image-pull-min-free", o.PullMinFree, "percent of containerd's file system that stay free: an image that would leave less is not pulled ahead. If not told otherwise, kubelet evicts pods and removes images below 15, until 20 are free")
	fs.DurationVar(&o.PullJitter, "image-pull-jitter", o.PullJitter, "pulls that a rollout asks for on many nodes begin spread over so long")
}
