package engine

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/containerd/containerd/v2/core/remotes/docker"

	"github.com/edgehub-io/edgehub/imagepull/engine/registry"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// registryConfig is the table registry of CRI's configuration.
type registryConfig struct {
	ConfigPath string                `json:"configPath" toml:"config_path"`
	Mirrors    map[string]any        `json:"mirrors"    toml:"mirrors"`
	Configs    map[string]hostConfig `json:"configs"    toml:"configs"` // by the host of a request
	Auths      map[string]auth       `json:"auths"      toml:"auths"`   // by URL or host
	Headers    map[string][]string   `json:"headers"    toml:"headers"`
}

type hostConfig struct {
	Auth *auth          `json:"auth" toml:"auth"`
	TLS  map[string]any `json:"tls"  toml:"tls"` // until 1.7, and there only without config_path
}

// auth authenticates to a registry. It must never be logged.
type auth struct {
	Username      string `json:"username"      toml:"username"`
	Password      string `json:"password"      toml:"password"`
	Auth          string `json:"auth"          toml:"auth"` // username:password in base64
	IdentityToken string `json:"identitytoken" toml:"identitytoken"`
}

// Format keeps passwords out of whatever prints a configuration.
func (auth) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "(auth)") }

// credential reads an auth as CRI does (ParseAuth of its image service). The zero value is none.
func (a auth) credential() (engineapi.Credential, error) {
	c := engineapi.Credential{Username: a.Username, Source: "registry.configs of containerd's configuration"}
	switch {
	case a.Username != "":
		c.Password = a.Password
	case a.IdentityToken != "":
		c.IdentityToken = a.IdentityToken
	case a.Auth != "":
		text, err := base64.StdEncoding.DecodeString(a.Auth)
		name, password, ok := strings.Cut(string(text), ":")
		if err != nil || !ok {
			return engineapi.Credential{}, errors.New("it is not username:password in base64")
		}
		c.Username, c.Password = name, strings.Trim(password, "\x00")
	}
	return c, nil
}

// hostAuths returns the auths of Configs and, as CRI merges them, Auths.
func (c *registryConfig) hostAuths() map[string]auth {
	all := map[string]auth{}
	for host, config := range c.Configs {
		if config.Auth != nil {
			all[host] = *config.Auth
		}
	}
	for endpoint, a := range c.Auths {
		if u, err := url.Parse(endpoint); err == nil && u.Scheme != "" {
			endpoint = u.Host
		}
		all[endpoint] = a
	}
	return all
}

// check refuses settings for a registry that containerd's resolver, which pulls here, does not know.
func (c *registryConfig) check(host string) error {
	_, mirrored := c.Mirrors[host]
	_, all := c.Mirrors["*"]
	var name string
	switch {
	case mirrored || all:
		name = "mirrors"
	case c.Configs[requested(host)].TLS != nil:
		name = "configs.tls"
	default:
		return nil
	}
	return engineapi.Errorf(engineapi.Settings, "containerd's configuration has registry.%s for %s, which is not supported; write it as hosts.toml in a folder that config_path names, and restart containerd, or %s", name, host, told)
}

// requested returns the host to which requests for a registry go, which is another one for Docker Hub.
func requested(registry string) string {
	host, err := docker.DefaultHost(registry)
	if err != nil {
		return registry
	}
	return host
}

// credentials returns what a pull from the registry presents: the credentials of pods or, if there are none, those
// of containerd's configuration. It fails if CRI could not read the registry's own.
func (s *settings) credentials(host string, ofPods []engineapi.Credential) (registry.Credentials, error) {
	c := registry.Credentials{OfPods: ofPods, OfHosts: map[string]engineapi.Credential{}}
	for other, a := range s.auths {
		own, err := a.credential()
		if err != nil && len(ofPods) == 0 && other == requested(host) {
			return c, engineapi.Errorf(engineapi.Settings, "the auth of registry.configs for %s in containerd's configuration cannot be read: %w; correct it and restart containerd, or add a credential to the pod's imagePullSecrets", host, err)
		}
		if own.Username != "" || own.IdentityToken != "" {
			c.OfHosts[other] = own
		}
	}
	return c, nil
}
