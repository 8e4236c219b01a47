package config

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/edgehub-io/edgehub/proxy/transform"
	"github.com/edgehub-io/edgehub/proxy/upstream"
)

// Options are the hub's flags as given. Names, ports and defaults are those of yurthub
// where the meaning is the same. An option is declared here and in AddFlags, and nowhere
// else: [Config] embeds Options.
type Options struct {
	NodeName      string
	ServerAddr    string // apiservers, as a list; empty: the kubeconfig's
	Balance       upstream.Balance
	Kubeconfig    string // ignored if BootstrapFile is set
	BootstrapFile string // empty: the hub has no certificate of its own
	RootDir       string

	BindAddress             string
	ServePort               int
	ServeClientCAFile       string // or empty: the node's HTTP API is plain, and on loopback
	ServeToContainers       bool   // on loopback
	QueueUpgrades           bool
	BindProxyAddress        string
	ProxyPort               int    // 0: off
	ProxySecurePort         int    // 0: off
	TLSCertFile             string // with TLSKeyFile, or empty
	TLSKeyFile              string
	ClientCAFile            string // or empty: the kubeconfig's
	DummyIfIP               string // as a list, or empty: pods do not use the hub
	APIServerNames          []string
	Transforms              []string
	ClusterIP               ClusterIP
	ServiceTopologyAccounts []string
	ServiceProxyAccounts    []string

	CallerCheck       CallerCheck
	NodeIdentityUsers []uint
	MaxConnections    int
	ShutdownGrace     time.Duration

	Limits          upstream.Limits
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
	KubeletKubeconfig string // or empty
	PullParallelism   int
	PullBandwidth     string // a quantity, of bytes a second; 0: no limit
	PullMinFree       int    // percent
	PullJitter        time.Duration
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	o := &Options{}
	o.AddFlags(pflag.NewFlagSet("", pflag.ContinueOnError))
	return o
}

// AddFlags registers the flags with fs, and sets o to the defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.NodeName, "node-name", "", "name of this node in the cluster (required)")
	fs.StringVar(&o.ServerAddr, "server-addr", "", "apiservers, as a comma list of https://HOST:PORT; empty: the server that --kubeconfig names")
	fs.StringVar((*string)(&o.Balance), "lb-mode", string(upstream.RoundRobin), "order in which several apiservers are tried: rr (in turn) or priority (the first that answers)")
	fs.StringVar(&o.Kubeconfig, "kubeconfig", "/etc/kubernetes/kubelet.conf", "kubeconfig with the node's credentials; read again when it, or a file it names, changes")
	fs.StringVar(&o.BootstrapFile, "bootstrap-file", "", "kubeconfig with a bootstrap token (kubeadm token create), with which the hub gets the node a client certificate of the hub's own, kept under --root-dir and renewed there; --kubeconfig is not read then. The file may be replaced while the hub runs: the server and CA in it count as long as it is there, and its token when the certificate has expired. Empty: the hub uses the credentials in --kubeconfig")
	fs.StringVar(&o.RootDir, "root-dir", "/var/lib/edgehub", "directory for what the hub keeps")

	fs.StringVar(&o.BindAddress, "bind-address", "127.0.0.1", "IP address of the node's HTTP API")
	fs.IntVar(&o.ServePort, "serve-port", 10267, "port of the node's HTTP API: health, metrics, pods and their upgrade")
	fs.StringVar(&o.ServeClientCAFile, "serve-client-ca-file", "", "CAs of the client certificates that may use the node's HTTP API, which is offered over TLS then; required where --bind-address is not on loopback")
	fs.BoolVar(&o.ServeToContainers, "serve-to-containers", false, "let pods on the host's network, and other containers, use the node's HTTP API on loopback; without, health and metrics are all they get")
	fs.BoolVar(&o.QueueUpgrades, "queue-upgrades", true, "let upgrades that owners ask for wait for the cloud, a time or a window; false: without the cloud they are 503, as with YurtHub, and what waits already is not carried out: it is shown, and can be cancelled")
	fs.StringVar(&o.BindProxyAddress, "bind-proxy-address", "127.0.0.1", "IP address of both proxy ports")
	fs.IntVar(&o.ProxyPort, "proxy-port", 0, "10261, say: port on which the apiserver is also offered over plain HTTP; it lends the node's identity to programs of the node without credentials, which cannot tell the hub there from any other program: not for kubelet; 0: off")
	fs.IntVar(&o.ProxySecurePort, "proxy-secure-port", 10268, "port on which the apiserver is offered over TLS, to callers with a token or the node's client certificate; 0: off")
	fs.StringVar(&o.TLSCertFile, "tls-cert-file", "", "certificate of the ports with TLS; empty: a self-signed one, kept under --root-dir")
	fs.StringVar(&o.TLSKeyFile, "tls-private-key-file", "", "private key for --tls-cert-file")
	fs.StringVar(&o.ClientCAFile, "client-ca-file", "", "CAs of the client certificates that the TLS port accepts; empty: the CA in --kubeconfig")
	fs.StringVar(&o.DummyIfIP, "dummy-if-ip", "", "addresses, one IPv4 and one IPv6 at most, as a comma list, at which the node's pods reach --proxy-secure-port: those of a dummy interface that `edgehub install` sets up; empty: pods are not led to the hub")
	fs.StringSliceVar(&o.APIServerNames, "apiserver-names", nil, "further names by which pods call the apiserver at --dummy-if-ip, as SERVICE.NAMESPACE.svc or SERVICE.NAMESPACE.svc.DOMAIN in a comma list, such as kubernetes.default.svc.k8s.example.com where the cluster's domain is not cluster.local; each has a certificate of its own, for clients that ask for it (SNI)")
	fs.StringSliceVar(&o.Transforms, "transforms", transform.Names(), "what some clients read otherwise than the apiserver sent it: what the node's own programs read, so that pods that start use the hub ("+transform.APIServerService+", "+transform.RootCA+", "+transform.KubeProxy+"; not without --dummy-if-ip), and the filters of Services that ask for them ("+transform.ServiceTopology+", "+transform.DiscardService+", "+transform.NodePortIsolation+"); as a comma list")
	fs.StringVar((*string)(&o.ClusterIP), "cluster-ip", string(ClusterIPOffline), "when kube-proxy leads the cluster IP of the Service default/kubernetes to the hub: offline (while the cloud is away) or always, as long as no pod runs that was started without the hub's CA. With always you state that the static pods of this node, pods without a token of their own, and the node's own programs that use the cluster IP trust the hub, too. It is for the --service-proxy-accounts, and needs --dummy-if-ip, the transforms "+transform.APIServerService+" and "+transform.RootCA+", and --container-runtime-endpoint")
	fs.StringSliceVar(&o.ServiceTopologyAccounts, "service-topology-accounts", []string{"kube-system/kube-proxy", "kube-system/coredns"}, "service accounts, as NAMESPACE/NAME in a comma list, that read the EndpointSlices of a Service as its annotation openyurt.io/topologyKeys asks")
	fs.StringSliceVar(&o.ServiceProxyAccounts, "service-proxy-accounts", []string{"kube-system/kube-proxy"}, "service accounts, as NAMESPACE/NAME in a comma list, of programs that carry the traffic of Services, as kube-proxy does: they do not read Services that their annotations svc.openyurt.io/discard or nodeport.openyurt.io/listen take off this node, and read the endpoints of the apiserver as --cluster-ip has it")
	fs.StringVar((*string)(&o.CallerCheck), "caller-check", string(CheckAuto), "whether --proxy-port lends the node's identity only to programs of --node-identity-users outside of containers: required, auto (where the hub can tell, and it warns where not) or off")
	fs.UintSliceVar(&o.NodeIdentityUsers, "node-identity-users", []uint{0}, "IDs of the users whose programs get the node's identity, as a comma list")
	fs.IntVar(&o.MaxConnections, "max-connections", 4096, "how many connections may be open to --proxy-port, --proxy-secure-port and --dummy-if-ip together, and as many to --serve-port; the last quarter is for the node's own programs, and --dummy-if-ip gets half")
	fs.DurationVar(&o.ShutdownGrace, "shutdown-grace-period", 5*time.Second, "how long a stop waits for requests to end; watches are ended at once")

	fs.DurationVar(&o.Limits.Loss, "upstream-loss-timeout", upstream.DefaultLoss, "an apiserver that owes an answer and sends nothing for so long, not even the answer to a ping, is lost; at least twice the slowest round trip")
	fs.DurationVar(&o.Limits.Probe, "upstream-probe-interval", upstream.DefaultProbe, "time between two attempts to reach an apiserver that is lost")
	fs.DurationVar(&o.Limits.IdlePing, "upstream-idle-ping-interval", upstream.DefaultIdlePing, "silence after which a connection with nothing but open watches is pinged; some 200 bytes each time")
	fs.IntVar(&o.Limits.BadAnswers, "upstream-bad-answers", upstream.DefaultBadAnswers, "how many answers 500, 502, 503, 504 or 429 within a minute make the hub ask for the node's Lease; an apiserver that does not answer that counts as lost")
	fs.DurationVar(&o.ReconnectJitter, "reconnect-jitter", 2*time.Second, "watches are resumed spread over so long after the cloud is back, so that a thousand nodes do not come at once")

	fs.Int64Var(&o.CacheMaxBytes, "cache-max-bytes", 256<<20, "how much the cache may hold, in bytes; beyond it, the user with the most loses what it has not read for longest, never what kubelet reads")
	fs.StringVar(&o.CacheKeyFile, "cache-encryption-key-file", "", "file with the key that cached objects are encrypted with; empty: they are not")
	fs.DurationVar(&o.OfflineTokenGrace, "offline-token-grace", 0, "how long after its expiry a token is good for reading the cache while the cloud is away; 0: as long as it is away")
	// Long enough to investigate, during a working day's outage, why a pod does not run, and a
	// limit for users whose access is revoked in the cloud meanwhile.
	fs.DurationVar(&o.OfflineAuthorizationTTL, "offline-authorization-ttl", 24*time.Hour, "how long after the apiserver allowed it a user may go on using kubelet's own API (logs, exec, metrics) while the cloud is away; 0: not at all")
	fs.IntVar(&o.EventSpoolMaxCount, "event-spool-max-count", 1000, "how many events are kept for the cloud while it is away")
	fs.Int64Var(&o.EventSpoolMaxBytes, "event-spool-max-bytes", 4<<20, "how many bytes of events are kept for the cloud while it is away")

	fs.StringVar(&o.RuntimeEndpoint, "container-runtime-endpoint", "unix:///run/containerd/containerd.sock", "containerd's socket, through which images are pulled ahead of an upgrade; empty: none are")
	fs.StringVar(&o.RegistryConfigDir, "registry-config-dir", "", "folder with a hosts.toml for each registry: mirrors, CAs; empty: the one that containerd uses")
	fs.StringVar(&o.KubeletRootDir, "kubelet-root-dir", "/var/lib/kubelet", "kubelet's --root-dir, where the node's own credentials for registries are; empty: they are not used")
	fs.StringVar(&o.KubeletKubeconfig, "kubelet-kubeconfig", "/etc/kubernetes/edgehub-kubelet.conf", "kubelet's kubeconfig for this hub: while the cloud is away, a kubelet whose client certificate there has expired is known by the secret tls-server-name there; empty, or no such file: that kubelet is refused")
	fs.IntVar(&o.PullParallelism, "image-pull-parallelism", 1, "how many images are pulled ahead at a time")
	fs.StringVar(&o.PullBandwidth, "image-pull-bandwidth", "0", "how many bytes a second images are pulled ahead with, all together, such as 500k or 2Mi; 0: no limit")
	fs.IntVar(&o.PullMinFree, "image-pull-min-free", 20, "percent of containerd's file system that stay free: an image that would leave less is not pulled ahead. If not told otherwise, kubelet evicts pods and removes images below 15, until 20 are free")
	fs.DurationVar(&o.PullJitter, "image-pull-jitter", 10*time.Second, "pulls that a rollout asks for on many nodes begin spread over so long")
}
