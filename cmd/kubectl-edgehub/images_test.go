package main

import (
	"bytes"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	imagename "github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/opencontainers/go-digest"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/cmd/kubectl-edgehub/imagetar"
	"github.com/edgehub-io/edgehub/imagepull/engine/archive"
	"github.com/edgehub-io/edgehub/ota/api"
)

// useRegistry has the pods of a field name images of a registry: web for arm64 and amd64, log for arm64 only. Each image has a layer with its
// name and platform. The registry answers a request with what answer says, if that is no 0. It returns the digests of both.
func (f *field) useRegistry(t *testing.T, answer func(*http.Request) (status int, text string)) (web, log string) {
	t.Helper()
	stored := registry.New(registry.Logger(discard()))
	started := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if started {
			if status, text := answer(r); status != 0 {
				w.WriteHeader(status)
				_, _ = io.WriteString(w, text)
				return
			}
		}
		stored.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	host := strings.TrimPrefix(server.URL, "http://")
	push := func(image string, platforms ...string) string {
		index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
		for _, platform := range platforms {
			p, err := v1.ParsePlatform(platform)
			if err != nil {
				t.Fatal(err)
			}
			i, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), static.NewLayer([]byte(image+" "+platform), types.OCILayer))
			if err != nil {
				t.Fatal(err)
			}
			index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: i, Descriptor: v1.Descriptor{Platform: p}})
		}
		ref, err := imagename.ParseReference(host + "/" + image)
		if err == nil {
			err = remote.WriteIndex(ref, index, remote.WithTransport(server.Client().Transport))
		}
		if err != nil {
			t.Fatal(err)
		}
		d, err := index.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return d.String()
	}
	web, log = push("web:2", "linux/amd64", "linux/arm64"), push("log:latest", "linux/arm64")
	started = true
	named := strings.NewReplacer("registry.example", host, "log:1", "log").Replace
	for _, pod := range f.pods {
		pod.Annotations[api.TargetAnnotation] = named(pod.Annotations[api.TargetAnnotation])
		for i := range pod.Spec.Containers {
			pod.Spec.Containers[i].Image = named(pod.Spec.Containers[i].Image)
		}
	}
	for _, r := range f.revisions {
		r.Data.Raw = []byte(named(string(r.Data.Raw)))
	}
	return web, log
}

func discard() *log.Logger { return log.New(io.Discard, "", 0) }

func TestBundleWithImages(t *testing.T) {
	for name, tt := range map[string]struct {
		platforms []imagetar.Platform
		change    func(*field)
	}{
		"for the platforms that are said":  {[]imagetar.Platform{{OS: "linux", Architecture: "arm64"}}, func(f *field) { f.forbidden = "nodes" }},
		"for the nodes of pods that count": {nil, func(f *field) { f.refuse(2, "the volumes differ"); delete(f.nodes, "node-b") }},
	} {
		t.Run(name, func(t *testing.T) {
			f := newField(t)
			f.signing.images = true
			web, log := f.useRegistry(t, func(*http.Request) (int, string) { return 0, "" })
			tt.change(f)
			code, out, errs := f.run(t.Context(), tt.platforms...)
			file, err := os.ReadFile(f.output)
			if code != cli.Done || err != nil {
				t.Fatalf("got exit code %d, %v and %s", code, err, errs)
			}
			b := f.written(t, file)
			a, err := archive.Open(bytes.NewReader(file))
			if err != nil {
				t.Fatal(err)
			}
			images := b.Target.Containers
			for i, want := range []string{web, log} {
				image := images[i].Image
				repo, _, _ := strings.Cut(image, ":2")
				if got, ok, err := a.Find(repo + "@" + want); err != nil || !ok || got.Digest != b.Images[image] || got.Digest.String() != want {
					t.Errorf("%s: got %v, %v, %v, and signed is %s; want %s", image, got, ok, err, b.Images[image], want)
				}
				if full := repo + []string{":2", ":latest"}[i]; !strings.Contains(out, full+" "+want+" ") {
					t.Errorf("got\n%s\nwant it to name %s", out, full)
				}
			}
			for text, want := range map[string]bool{"web:2 linux/arm64": true, "log:latest linux/arm64": true, "web:2 linux/amd64": false} {
				if _, ok := a.Blob(digest.FromString(text)); ok != want {
					t.Errorf("the layer %q is there: %t", text, ok)
				}
			}
			if len(b.Images) != 2 || strings.Count(out, "\nimage: ") != 2 {
				t.Errorf("got the images %v and\n%s", b.Images, out)
			}
		})
	}
}

func TestNothingIsLeftOfABundle(t *testing.T) {
	var stop context.CancelFunc
	layer := func(r *http.Request) bool {
		return strings.HasSuffix(r.URL.Path, digest.FromString("log:latest linux/arm64").String())
	}
	tests := map[string]struct {
		answer func(*http.Request) (int, string)
		says   string
	}{
		"a registry that sends other bytes": {func(r *http.Request) (int, string) {
			if layer(r) {
				return http.StatusOK, "log:latest linux/arm65"
			}
			return 0, ""
		}, "error verifying sha256 checksum"},
		"a registry without an image": {func(r *http.Request) (int, string) {
			if strings.Contains(r.URL.Path, "/log/manifests/") {
				return http.StatusNotFound, ""
			}
			return 0, ""
		}, "/log:latest: GET"},
		"no manifest for a node": {func(*http.Request) (int, string) { return 0, "" }, `/log:latest: it has no manifest for linux/amd64; it has "linux/arm64"`},
		"an interruption": {func(r *http.Request) (int, string) {
			if layer(r) {
				stop()
				<-r.Context().Done()
			}
			return 0, ""
		}, "context canceled"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := newField(t)
			f.signing.images = true
			f.useRegistry(t, tt.answer)
			if name != "no manifest for a node" {
				f.nodes["node-c"] = "arm64"
			}
			if err := os.WriteFile(f.output, []byte("what was there before"), 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stop = cancel
			code, out, errs := f.run(ctx)
			left, err := os.ReadDir(filepath.Dir(f.output))
			if code != cli.Failed || out != "" || !strings.Contains(errs, tt.says) || len(left) != 1 || err != nil {
				t.Errorf("got exit code %d, %q and %s, and it has left %v, %v", code, out, errs, left, err)
			}
			if text, err := os.ReadFile(f.output); string(text) != "what was there before" {
				t.Errorf("the file is %.100q, %v", text, err)
			}
		})
	}
}
