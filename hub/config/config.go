package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
)

// CallerCheck says whether the programs that use the plain port are looked at.
type CallerCheck string

// The values of --caller-check.
const (
	CheckAuto     CallerCheck = "auto"     // where the kernel can tell, which is tried at start
	CheckRequired CallerCheck = "required" // or there is no start
	CheckOff      CallerCheck = "off"
)

// Config is the hub's configuration: Options that were found to make sense, and what
// follows from them. It is not changed after hub.New.
type Config struct {
	Options

	Servers []*url.URL // empty: the kubeconfig's

	ServeAddress  string // host:port of the node's HTTP API
	ProxyAddress  string // host:port of the plain proxy port, or empty
	SecureAddress string // host:port of the TLS proxy port, or empty
	ProxyHost     netip.Addr

	IdentityUIDs []uint32 // NodeIdentityUsers
	PullRate     int64    // PullBandwidth in bytes a second, or 0
}

// Config checks o. Its error names every flag that has to change.
func (o *Options) Config() (*Config, error) {
	c := &Config{Options: *o}
	var p problems
	c.checkRequired(&p)
	c.checkBounds(&p)
	c.checkCallers(&p)
	c.checkPulls(&p)
	c.checkAddresses(&p)
	c.checkServers(&p)
	if err := p.err(); err != nil {
		return nil, err
	}
	return c, nil
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
