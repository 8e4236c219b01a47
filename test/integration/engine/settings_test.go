package engine

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/edgehub-io/edgehub/imagepull/engine"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/pulltest"
)

// likeCRI returns an engine that is not told where CRI's configuration of registries is.
func (r *rig) likeCRI() *engine.Engine {
	r.Helper()
	return r.newEngine(func(o *engine.Options) { o.HostsDir = "" })
}

// reconfigured starts containerd again with another configuration.
func (r *rig) reconfigured(change ...string) {
	r.Helper()
	file := filepath.Join(r.containerd.Dir(), "containerd.toml")
	config, err := os.ReadFile(file)
	r.must(err)
	changed := strings.NewReplacer(change...).Replace(string(config))
	if changed == string(config) {
		r.Fatalf("%q is not in the configuration:\n%s", change, config)
	}
	r.must(os.WriteFile(file, []byte(changed), 0o600))
	r.must(r.containerd.Kill())
	r.must(r.containerd.Start(r.Context()))
	r.eventually(func() error {
		_, err := r.cri.ImageFsInfo(r.Context(), &cri.ImageFsInfoRequest{})
		return err
	})
}

// hostsLine sets config_path in the configuration of every version.
func (r *rig) hostsLine() string { return `config_path = "` + r.containerd.HostsDir() + `"` }

// refusedByCRI has CRI pull an image, which must fail.
func (r *rig) refusedByCRI(reference string) {
	r.Helper()
	if _, err := r.cri.PullImage(r.Context(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: reference}}); err == nil {
		r.Errorf("CRI has pulled %s", reference)
	}
}

// TestProxyOfContainerd is the one that requests to registries take, and no other, as CRI's do.
func TestProxyOfContainerd(t *testing.T) {
	cluster.NeedRoot(t)
	for version, d := range daemons {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			registry := pulltest.ServeRegistry(t)
			var passed atomic.Int64
			to := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
				passed.Add(1)
				p.SetURL(&url.URL{Scheme: "http", Host: registry.Addr()})
			}}
			proxy := httptest.NewServer(http.HandlerFunc(to.ServeHTTP))
			t.Cleanup(proxy.Close)
			r := newRig(t, version, pulltest.StartContainerd(t, cluster.ContainerdOptions{
				Version: d.version, Env: []string{"HTTP_PROXY=" + proxy.URL, "NO_PROXY=direct.invalid"},
			}))
			image, _ := pulltest.Push(t, registry, "app", "1", r.ballast(1, 100<<10)...)
			_, _ = pulltest.Push(t, registry, "other", "1", r.ballast(2, 100<<10)...)
			for _, host := range []string{"proxied.invalid", "direct.invalid"} {
				folder := filepath.Join(r.containerd.HostsDir(), host)
				r.must(os.MkdirAll(folder, 0o755))
				r.must(os.WriteFile(filepath.Join(folder, "hosts.toml"), []byte(`server = "http://`+host+`"`), 0o600))
			}
			for name, e := range map[string]*engine.Engine{
				"app": r.likeCRI(), "other": r.newEngine(func(o *engine.Options) { o.HostsDir = r.containerd.HostsDir() }),
			} {
				before := passed.Load()
				if _, err := e.Pull(r.Context(), engineapi.Request{Image: "proxied.invalid/" + name + ":1"}); err != nil {
					t.Errorf("%s of %s: %v", name, image, err)
				}
				if passed.Load() == before {
					t.Error("nothing has passed the proxy")
				}
			}
			before := passed.Load()
			r.refused(r.likeCRI(), engineapi.Unreachable, engineapi.Request{Image: "direct.invalid/app:1"})
			r.refusedByCRI("direct.invalid/app:1")
			if more := passed.Load() - before; more > 0 {
				t.Errorf("%d requests for a host of NO_PROXY have passed the proxy", more)
			}
		})
	}
}

// TestImportedSettings come from a file that containerd's configuration imports.
func TestImportedSettings(t *testing.T) {
	eachAlone(t, func(r *rig) {
		if r.version != "2" {
			r.Skip("containerd 1 tells which folder CRI uses, wherever it is set")
		}
		hosts, more := r.TempDir(), filepath.Join(r.containerd.Dir(), "more")
		r.must(os.MkdirAll(more, 0o755))
		r.must(os.WriteFile(filepath.Join(more, "a.toml"), []byte("version = 3\n[plugins.'io.containerd.cri.v1.images'.registry]\nconfig_path = '"+hosts+"'\n"), 0o600))
		r.reconfigured("imports = []", `imports = ["more/*.toml"]`)
		_, _ = r.push("app", "1", r.ballast(1, 1000)...)
		r.must(r.registry.WriteHosts(hosts, "mirrored.invalid"))
		e := r.likeCRI()
		r.pullOnceBack(e, "mirrored.invalid/app:1")

		// Another configuration counts from containerd's next start on.
		elsewhere := r.TempDir()
		r.must(r.registry.WriteHosts(elsewhere, "elsewhere.invalid"))
		r.must(os.WriteFile(filepath.Join(more, "a.toml"), []byte("version = 3\n[plugins.'io.containerd.cri.v1.images'.registry]\nconfig_path = '"+elsewhere+"'\n"), 0o600))
		r.refused(e, engineapi.Unreachable, engineapi.Request{Image: "elsewhere.invalid/app:1"})
		r.must(r.containerd.Kill())
		r.must(r.containerd.Start(r.Context()))
		r.pullOnceBack(e, "elsewhere.invalid/app:1")
	})
}

// criPlugin is the plugin of CRI that pulls, in containerd's configuration.
func (r *rig) criPlugin() string {
	if r.version == "2" {
		return "io.containerd.cri.v1.images"
	}
	return "io.containerd.grpc.v1.cri"
}

// TestSettingsThatAreRefused are those by which CRI would pull from elsewhere, of the registry that they are
// about. What the hub is told about registries counts in their place.
func TestSettingsThatAreRefused(t *testing.T) {
	eachAlone(t, func(r *rig) {
		reference, _ := r.push("app", "1", r.ballast(1, 1000)...)
		r.reconfigured(r.hostsLine(), "[plugins.'"+r.criPlugin()+"'.registry.mirrors.'mirrored.invalid']\n  endpoint = ['"+r.registry.URL()+"']\n")
		mirrored := engineapi.Request{Image: "mirrored.invalid/app:1"}
		failure := r.refused(r.likeCRI(), "ContainerdSettings", mirrored)
		r.says(failure, "mirrors for mirrored.invalid", "--registry-config-dir")
		if _, err := r.likeCRI().Pull(r.Context(), engineapi.Request{Image: reference}); err != nil {
			r.Errorf("a registry without a mirror: %v", err)
		}
		_, err := r.cri.PullImage(r.Context(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: mirrored.Image}})
		r.must(err)
		if _, err := r.likeCRI().Pull(r.Context(), mirrored); err != nil {
			r.Errorf("an image that CRI has pulled: %v", err)
		}
		r.pull(reference)
	})
}

// TestPasswordInSettings is what k3s and RKE2 write into containerd's configuration.
func TestPasswordInSettings(t *testing.T) {
	eachAlone(t, func(r *rig) {
		open := pulltest.ServeRegistry(t)
		for _, repository := range []string{"first", "second", "third"} {
			_, _ = r.push(repository, "1", r.ballast(1, 1000)...)
			r.registry.Require(repository, "me", secret+"me")
		}
		image := func(repository string) engineapi.Request {
			return engineapi.Request{Image: r.registry.Reference(repository, "1")}
		}
		other, _ := pulltest.Push(t, open, "app", "1", r.ballast(2, 1000)...)
		auth := func(password string) string {
			return r.hostsLine() + "\n[plugins.'" + r.criPlugin() + "'.registry.configs.'" + r.registry.Addr() + "'.auth]\n  username = 'me'\n  password = '" + password + "'\n"
		}
		r.must(r.registry.WriteHosts(r.containerd.HostsDir(), r.registry.Addr()))
		r.must(open.WriteHosts(r.containerd.HostsDir(), open.Addr()))
		r.reconfigured(r.hostsLine(), auth(secret+"me"))

		_, err := r.cri.PullImage(r.Context(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: image("first").Image}})
		r.must(err)
		for what, request := range map[string]engineapi.Request{
			"on the node": image("first"), "with the password of the configuration": image("second"), "of a registry without one": {Image: other},
		} {
			if _, err := r.likeCRI().Pull(r.Context(), request); err != nil {
				r.Errorf("%s: %v", what, err)
			}
		}
		if _, err := r.engine.Pull(r.Context(), image("third")); err != nil {
			r.Errorf("with other folders than CRI's: %v", err)
		}

		_, _ = r.push("fourth", "1", r.ballast(3, 1000)...)
		r.registry.Require("fourth", "me", secret+"me")
		r.reconfigured(auth(secret+"me"), auth(secret+"wrong"))
		r.refusedByCRI(image("fourth").Image)
		r.says(r.refused(r.likeCRI(), engineapi.Unauthorized, image("fourth")), "registry.configs in containerd's configuration")
		ofPod := image("fourth")
		ofPod.Credentials = []engineapi.Credential{credential("me", "secret default/me")}
		if _, err := r.likeCRI().Pull(r.Context(), ofPod); err != nil {
			r.Errorf("with a credential of the pod, which counts: %v", err)
		}
	})
}

// TestSeveralFolders are read by CRI, or are none to it: containerd's transfer service, by which CRI
// pulls from 2.1 on, takes the list for the name of one folder.
func TestSeveralFolders(t *testing.T) {
	eachAlone(t, func(r *rig) {
		hosts := r.TempDir()
		r.reconfigured(r.hostsLine(), `config_path = "`+r.TempDir()+":"+hosts+`"`)
		_, _ = r.push("app", "1", r.ballast(1, 1000)...)
		r.must(r.registry.WriteHosts(hosts, "mirrored.invalid"))
		if r.version != "2" {
			r.pullOnceBack(r.likeCRI(), "mirrored.invalid/app:1")
			return
		}
		r.refusedByCRI("mirrored.invalid/app:1")
		failure := r.refused(r.likeCRI(), "ContainerdSettings", engineapi.Request{Image: "mirrored.invalid/app:1"})
		r.says(failure, "one folder")
		reference, _ := r.push("other", "1", r.ballast(2, 1000)...)
		if _, err := r.likeCRI().Pull(r.Context(), engineapi.Request{Image: reference}); err != nil {
			r.Errorf("a registry that no folder is about: %v", err)
		}
	})
}
