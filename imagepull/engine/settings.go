package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/containerd/errdefs"

	"github.com/edgehub-io/edgehub/imagepull/engine/daemon"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// settings are how CRI reaches registries. A pull must not reach them in another way: its image
// would be another one, or from where the node must not pull.
type settings struct {
	folders []string // like certs.d; the first that configures a registry counts
	headers http.Header
	proxy   func(*http.Request) (*url.URL, error)
	auths   map[string]auth // by the host of a request
}

// fileConfig is the part of containerd's configuration that CRI does not report from 2.0 on.
type fileConfig struct {
	Plugins struct {
		Images *struct {
			Registry registryConfig `toml:"registry"`
			// Local is nil before 2.1, which has no other way to pull.
			Local *bool `toml:"use_local_image_pull"`
		} `toml:"io.containerd.cri.v1.images"`
	} `toml:"plugins"`
}

// registry returns CRI's table, or nil, and whether CRI may read none of its folders: an empty list is
// none in 2.0 and 2.1, and the default later. The transfer service, by which CRI pulls from 2.1 on,
// takes a list for the name of one folder.
func (c fileConfig) registry() (_ *registryConfig, uncertain bool) {
	images := c.Plugins.Images
	if images == nil {
		return nil, false
	}
	r := images.Registry
	if r.ConfigPath == "" {
		r.ConfigPath = defaultHosts
		return &r, true
	}
	return &r, images.Local != nil && !*images.Local && len(filepath.SplitList(r.ConfigPath)) > 1
}

// fileConfigs is what the files of one process of containerd said when it was first asked: it reads
// them when it starts, and only then.
type fileConfigs struct {
	mu      sync.Mutex
	process string
	read    fileConfig
}

func (f *fileConfigs) of(ctx context.Context, p daemon.Process) (fileConfig, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.process == p.ID() {
		return f.read, nil
	}
	var c fileConfig
	if err := p.Config(ctx, &c); err != nil {
		return fileConfig{}, err
	}
	f.process, f.read = p.ID(), c
	return c, nil
}

// settings returns how CRI reaches the registry of a host. What it cannot find out, or does not
// support, is an *Error, unless Options.HostsDir says where CRI's folders are; then this program's
// own proxy counts, if containerd's is not known.
func (e *Engine) settings(ctx context.Context, n node, host string) (settings, error) {
	ctx, cancel := briefContext(ctx)
	defer cancel()
	var s settings
	process, err := daemon.At(ctx, e.opts.Address)
	if err == nil {
		s.proxy, err = process.Proxy()
	}
	said, uncertain := n.registry, false
	if said == nil && err == nil {
		said, uncertain, err = e.fileRegistry(ctx, process)
	}
	if e.opts.HostsDir != "" {
		s.folders = filepath.SplitList(e.opts.HostsDir)
		if s.proxy == nil {
			s.proxy = http.ProxyFromEnvironment
			e.log.Debug("containerd's proxy is not known, and the hub's own is used", "err", err)
		}
		if said != nil {
			s.auths = said.hostAuths()
		}
		return s, nil
	}
	if err != nil {
		return settings{}, unknown(err)
	}
	if err := said.check(host); err != nil {
		return settings{}, err
	}
	s.folders, s.headers, s.auths = filepath.SplitList(said.ConfigPath), said.Headers, said.hostAuths()
	for _, folder := range s.folders {
		if err := process.Sees(folder); err != nil {
			return settings{}, unknown(err)
		}
		if uncertain && configures(folder, host) {
			return settings{}, engineapi.Errorf(engineapi.Settings, "containerd's config_path names several folders or none, and its versions differ in whether CRI reads then what %s says about %s; set config_path to one folder and restart containerd, or %s", folder, host, told)
		}
	}
	return s, nil
}

// fileRegistry returns CRI's table registry as the files of containerd say.
func (e *Engine) fileRegistry(ctx context.Context, process daemon.Process) (said *registryConfig, uncertain bool, err error) {
	c, err := e.files.of(ctx, process)
	if err != nil {
		return nil, false, err
	}
	if said, uncertain = c.registry(); said == nil {
		err = engineapi.Errorf(engineapi.Settings, "containerd's configuration says nothing of how CRI pulls; %s", told)
	}
	return said, uncertain, err
}

// configures reports whether a folder has something about a registry.
func configures(folder, host string) bool {
	dir, err := config.HostDirFromRoot(folder)(host)
	return err == nil && dir != ""
}

// told is what helps in any case.
const told = "give the hub --registry-config-dir=FOLDER, with a hosts.toml that leads where containerd pulls from"

// unknown returns the failure for what cannot be found out. A process that has ended is not that.
func unknown(err error) error {
	if known, ok := errors.AsType[*engineapi.Error](err); ok {
		return known
	}
	if _, ok := errors.AsType[*net.OpError](err); ok || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("%w: %w", errdefs.ErrUnavailable, err)
	}
	return engineapi.Errorf(engineapi.Settings, "it is not known how containerd pulls (%s); %s, and containerd's HTTPS_PROXY and NO_PROXY in the hub's own environment", engineapi.Quote(err.Error()), told)
}

// header returns what is sent with each request: what CRI sends, and the hub's name.
func (e *Engine) header(cris http.Header) http.Header {
	h := http.Header{}
	for name, values := range cris {
		h[name] = values
	}
	if e.opts.UserAgent != "" {
		h.Set("User-Agent", e.opts.UserAgent)
	}
	return h
}
