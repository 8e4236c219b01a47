package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
)

// CallerCheck determines whether callers on the plain port are checked before they get the node's
// identity.
type CallerCheck string

// The values of --caller-check.
const (
	CheckAuto     CallerCheck = "auto"     // if the kernel supports it, as tested at the start
	CheckRequired CallerCheck = "required" // the hub does not start without it
	CheckOff      CallerCheck = "off"
)

// ClusterIP determines when the cluster IP of the apiserver leads to the hub.
type ClusterIP string

// The values of --cluster-ip.
const (
	ClusterIPOffline ClusterIP = "offline" // while the cloud is away
	ClusterIPAlways  ClusterIP = "always"  // also while it is there, if all pods trust the hub
)

// PodCAName is the name of PodCAFile in PKIDir.
const PodCAName = "pods-ca.pem"

// Config is the hub's configuration: validated Options, and values derived from them. It is
// not changed after hub.New.
type Config struct {
	Options

	Servers []*url.URL // empty: the server in the kubeconfig

	ServeAddress  string // host:port of the node's HTTP API
	ProxyAddress  string // host:port of the plain proxy port, or empty
	SecureAddress string // host:port of the TLS proxy port, or empty
	ProxyHost     netip.Addr
	PodAddresses  []netip.Addr // DummyIfIP: where pods reach ProxySecurePort

	IdentityUIDs []uint32 // NodeIdentityUsers
	PullRate     int64    // PullBandwidth in bytes a second, or 0
}

// Config validates o. Its error names every flag that has to change.
func (o *Options) Config() (*Config, error) {
	c := &Config{Options: *o}
	var p problems
	c.checkRequired(&p)
	c.checkBounds(&p)
	c.checkCallers(&p)
	c.checkPulls(&p)
	c.checkAddresses(&p)
	c.checkPods(&p)
	c.checkServers(&p)
	if len(p) > 0 {
		return nil, errors.Join(p...)
	}
	return c, nil
}

// bindingName is the file that says whose folder RootDir is.
const bindingName = "cluster.json"

// FormerName is the folder for what another cluster, or node, has left.
const FormerName = "former-cluster"

// BindingFile is the file that says whose folder RootDir is.
func (c *Config) BindingFile() string { return filepath.Join(c.RootDir, bindingName) }

// RootNames are the files and folders that a hub keeps in RootDir.
func RootNames() []string {
	return []string{bindingName, "cache", FormerName, "imagepull", "outage.json", "pki", "traffic.json", "upgrades", "web-tokens.json"}
}

// InPlaceDir is the directory of the journal of upgrades in place.
func (c *Config) InPlaceDir() string { return filepath.Join(c.RootDir, "upgrades", "inplace") }

// PKIDir is the directory of the hub's own certificates.
func (c *Config) PKIDir() string { return filepath.Join(c.RootDir, "pki") }

// PodCAFile is the CA that the node's pods verify the hub with, and its key.
func (c *Config) PodCAFile() string { return filepath.Join(c.PKIDir(), PodCAName) }

// PodServers are the hub's addresses for pods, as host:port.
func (c *Config) PodServers() []string {
	var servers []string
	for _, address := range c.PodAddresses {
		servers = append(servers, netip.AddrPortFrom(address, uint16(c.ProxySecurePort)).String())
	}
	return servers
}

// CheckLoop returns an error if server is the hub itself, as in the kubeconfig of a kubelet that
// already talks to the hub.
func (c *Config) CheckLoop(server *url.URL) error {
	host := server.Hostname()
	if host == "localhost" {
		host = "127.0.0.1"
	}
	own := net.JoinHostPort(host, server.Port())
	if own == c.ProxyAddress || own == c.SecureAddress || slices.Contains(c.PodServers(), own) {
		return fmt.Errorf("%s is this hub itself: name the apiserver in the cloud", server.Host)
	}
	return nil
}
