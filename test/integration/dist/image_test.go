package dist

import (
	"context"
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/cluster/images"
)

// checkImages pushes the images to a registry, as people with one of their own do, and
// runs them in a containerd.
func checkImages(t *testing.T, dir string) {
	registry, err := images.Serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = registry.Close() })
	out, err := exec.CommandContext(t.Context(), "make", "-C", productRoot, "dist-push", "DIST="+dir, "REGISTRY="+registry.Addr()+"/mirror").CombinedOutput()
	if err != nil {
		t.Fatalf("push: %v\n%s", err, out)
	}
	for image, user := range map[string]string{"edgehub-controller": "65532:65532", "edgehub": "0:0"} {
		reference := registry.Reference("mirror/"+image, version)
		if !strings.Contains(string(out), reference+"@sha256:") {
			t.Errorf("push does not name %s:\n%s", reference, out)
		}
		checkLayout(t, filepath.Join(dir, "images", image), registry.URL()+"/v2/mirror/"+image, image, user)
	}
	cluster.NeedRoot(t)
	c := startContainerd(t, registry)
	for image, user := range map[string]float64{"edgehub-controller": 65532, "edgehub": 0} {
		reference := registry.Reference("mirror/"+image, version)
		c.do("images", "pull", "--snapshotter", "native", "--hosts-dir", c.HostsDir(), reference)
		c.checkRun(reference, image, user)
		archive := filepath.Join(dir, image+"-image-"+version+"-linux-"+goarch+".tar")
		c.do("images", "import", "--snapshotter", "native", archive)
		c.checkRun("docker.io/edgehub/"+image+":"+version, image, user)
	}
}

// checkLayout looks at the image for each platform, and whether the registry has it.
func checkLayout(t *testing.T, folder, repository, program, user string) {
	t.Helper()
	top, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := top.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("%s has not one index: %+v, %v", folder, manifest, err)
	}
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if manifest, err = index.IndexManifest(); err != nil || len(manifest.Manifests) != 2 {
		t.Fatalf("%s has not two platforms: %+v, %v", folder, manifest, err)
	}
	for i, architecture := range architectures {
		digest := manifest.Manifests[i].Digest
		if code := status(t, repository+"/manifests/"+digest.String()); code != http.StatusOK {
			t.Errorf("the registry answers %d for %s for %s", code, program, architecture)
		}
		image, err := index.Image(digest)
		if err != nil {
			t.Fatal(err)
		}
		file, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		checkConfig(t, file, architecture, program, user)
	}
}

func checkConfig(t *testing.T, file *v1.ConfigFile, architecture, program, user string) {
	t.Helper()
	if file.Architecture != architecture || file.Config.User != user || strings.Join(file.Config.Entrypoint, " ") != "/"+program {
		t.Errorf("%s for %s is for %s, runs %q as %q", program, architecture, file.Architecture, file.Config.Entrypoint, file.Config.User)
	}
	for label, want := range map[string]string{"title": program, "version": version, "revision": revision, "created": date, "licenses": "Apache-2.0"} {
		if got := file.Config.Labels["org.opencontainers.image."+label]; got != want {
			t.Errorf("%s for %s: the label %s is %q; want %q", program, architecture, label, got, want)
		}
	}
}

func status(t *testing.T, url string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// runtimeClient is containerd's own client, ctr, for one containerd.
type runtimeClient struct {
	*cluster.Containerd
	t *testing.T
}

func startContainerd(t *testing.T, registry *images.Registry) runtimeClient {
	t.Helper()
	c, err := cluster.StartContainerd(t.Context(), cluster.ContainerdOptions{Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := c.Trust(registry); err != nil {
		t.Fatal(err)
	}
	return runtimeClient{Containerd: c, t: t}
}

func (c runtimeClient) run(args ...string) (string, error) {
	ctx := context.WithoutCancel(c.t.Context()) // a cleanup may need it
	out, err := exec.CommandContext(ctx, "ctr", append([]string{"--address", c.Socket()}, args...)...).CombinedOutput()
	return string(out), err
}

func (c runtimeClient) do(args ...string) string {
	c.t.Helper()
	out, err := c.run(args...)
	if err != nil {
		c.t.Fatalf("ctr %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// checkRun runs an image's program with a read-only root, as the user in the image.
func (c runtimeClient) checkRun(reference, program string, user float64) {
	c.t.Helper()
	const id = "release"
	out := c.do("run", "--read-only", "--snapshotter", "native", reference, id, "/"+program, "--version")
	defer c.do("containers", "rm", id)
	if want := program + " " + version + " (commit " + revision[:7]; !strings.HasPrefix(out, want) {
		c.t.Errorf("%s says %q; want %q", reference, out, want)
	}
	var container struct {
		Spec struct {
			Process struct {
				User struct {
					UID float64 `json:"uid"`
				} `json:"user"`
			} `json:"process"`
			Root struct {
				Readonly bool `json:"readonly"`
			} `json:"root"`
		}
	}
	if err := json.Unmarshal([]byte(c.do("containers", "info", id)), &container); err != nil {
		c.t.Fatal(err)
	}
	if container.Spec.Process.User.UID != user || !container.Spec.Root.Readonly {
		c.t.Errorf("%s ran with %+v", reference, container.Spec)
	}
}
