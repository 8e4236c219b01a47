package hub

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/edgehub-io/edgehub/proxy"
)

// Options are the hub's flags as they were given. Names, ports and defaults are
// yurthub's where the meaning is the same.
type Options struct {
	NodeName    string
	ServerAddr  string
	LBMode      string
	Kubeconfig  string
	RootDir     string
	BindAddress string
	ServePort   int

	BindProxyAddress string
	ProxyPort        int
	ProxySecurePort  int
	TLSCertFile      string
	TLSKeyFile       string
	ClientCAFile     string

	ShutdownGrace time.Duration
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
	}
}

// AddFlags binds o to fs; the values o has now are the defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.NodeName, "node-name", o.NodeName, "name of this node in the cluster (required)")
	fs.StringVar(&o.ServerAddr, "server-addr", o.ServerAddr, "apiservers, as a comma list of https://HOST:PORT; empty: the server that --kubeconfig names")
	fs.StringVar(&o.LBMode, "lb-mode", o.LBMode, "order in which several apiservers are tried: rr (in turn) or priority (the first that answers)")
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig with the node's credentials; read again when it, or a file it names, changes")
	fs.StringVar(&o.RootDir, "root-dir", o.RootDir, "directory for what the hub keeps")

	fs.StringVar(&o.BindAddress, "bind-address", o.BindAddress, "IP address of the node's HTTP API")
	fs.IntVar(&o.ServePort, "serve-port", o.ServePort, "port of the node's HTTP API: health, metrics, pods and their upgrade")
	fs.StringVar(&o.BindProxyAddress, "bind-proxy-address", o.BindProxyAddress, "IP address of both proxy ports")
	fs.IntVar(&o.ProxyPort, "proxy-port", o.ProxyPort, "port on which the apiserver is offered over plain HTTP; it lends the node's identity to callers without credentials; 0: off")
	fs.IntVar(&o.ProxySecurePort, "proxy-secure-port", o.ProxySecurePort, "port on which the apiserver is offered over TLS, to callers with a token or the node's client certificate; 0: off")
	fs.StringVar(&o.TLSCertFile, "tls-cert-file", o.TLSCertFile, "certificate of the TLS port; empty: a self-signed one, kept under --root-dir")
	fs.StringVar(&o.TLSKeyFile, "tls-private-key-file", o.TLSKeyFile, "private key for --tls-cert-file")
	fs.StringVar(&o.ClientCAFile, "client-ca-file", o.ClientCAFile, "CAs of the client certificates that the TLS port accepts; empty: the CA in --kubeconfig")
	fs.DurationVar(&o.ShutdownGrace, "shutdown-grace-period", o.ShutdownGrace, "how long a stop waits for requests to end; watches are ended at once")
}
