package imagetar

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/edgehub-io/edgehub/imagepull/engine/archive"
)

// rig is a registry in this process.
type rig struct {
	t      *testing.T
	host   string
	source *Source
	// answer, if set, answers instead of the registry, or returns false.
	answer func(w http.ResponseWriter, r *http.Request) bool
	pusher remote.Option
}

func newRig(t *testing.T) *rig {
	t.Helper()
	g := &rig{t: t}
	stored := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.answer == nil || !g.answer(w, r) {
			stored.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	g.host = strings.TrimPrefix(server.URL, "http://")
	g.pusher = remote.WithTransport(server.Client().Transport)
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	var err error
	if g.source, err = NewSource("test"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.source.Close)
	return g
}

// push pushes an image or an index, and returns its name in the registry.
func (g *rig) push(as string, what remote.Taggable) string {
	g.t.Helper()
	full := g.host + "/" + as
	ref, err := name.ParseReference(full)
	if err == nil {
		switch what := what.(type) {
		case v1.ImageIndex:
			err = remote.WriteIndex(ref, what, g.pusher)
		case v1.Image:
			err = remote.Write(ref, what, g.pusher)
		}
	}
	if err != nil {
		g.t.Fatal(err)
	}
	return full
}

// image returns one for a platform, as its configuration says, with layers of these contents.
func (g *rig) image(platform string, layers ...string) v1.Image {
	g.t.Helper()
	p, err := v1.ParsePlatform(platform)
	if err != nil {
		g.t.Fatal(err)
	}
	i := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	i, err = mutate.ConfigFile(i, &v1.ConfigFile{OS: p.OS, Architecture: p.Architecture, Variant: p.Variant, Author: strings.Join(layers, " ")})
	for _, content := range layers {
		if err == nil {
			i, err = mutate.AppendLayers(i, static.NewLayer([]byte(content), types.OCILayer))
		}
	}
	if err != nil {
		g.t.Fatal(err)
	}
	return i
}

// of is what an index says of the platform of one of its manifests; "": nothing.
func of(platform string, what mutate.Appendable) mutate.IndexAddendum {
	a := mutate.IndexAddendum{Add: what}
	if platform != "" {
		a.Platform, _ = v1.ParsePlatform(platform)
	}
	return a
}

func index(all ...mutate.IndexAddendum) v1.ImageIndex {
	return mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), all...)
}

// multi is an index with an image for each of some platforms, each with a layer of the platform's name, and all with one more.
func (g *rig) multi(platforms ...string) v1.ImageIndex {
	var all []mutate.IndexAddendum
	for _, p := range platforms {
		all = append(all, of(p, g.image(p, p, "shared")))
	}
	return index(append(all, of("unknown/unknown", g.image("unknown/unknown", "attestation")))...)
}

// resolve resolves images in their order.
func (g *rig) resolve(platforms []string, names ...string) (all []*Image, err error) {
	g.t.Helper()
	var wanted []Platform
	for _, text := range platforms {
		p, err := ParsePlatform(text)
		if err != nil {
			g.t.Fatal(err)
		}
		wanted = append(wanted, p)
	}
	for _, name := range names {
		i, err := g.source.Resolve(g.t.Context(), name, wanted)
		if err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	return all, nil
}

func (g *rig) write(images []*Image) ([]byte, error) {
	var out bytes.Buffer
	err := Write(g.t.Context(), &out, File{"first.json", []byte("{}")}, images, func(int64, int64) {})
	return out.Bytes(), err
}

// members returns the names and contents of a tar, in order.
func members(t *testing.T, file []byte) (names, contents []string) {
	t.Helper()
	for from := tar.NewReader(bytes.NewReader(file)); ; {
		header, err := from.Next()
		if errors.Is(err, io.EOF) {
			return names, contents
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(from)
		if err != nil {
			t.Fatal(err)
		}
		names, contents = append(names, header.Name), append(contents, string(content))
	}
}

// open opens a tar as a node does, which has each image by its name and its digest.
func open(t *testing.T, file []byte, images ...*Image) *archive.Archive {
	t.Helper()
	a, err := archive.Open(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range images {
		repo, _, _ := strings.Cut(i.Name, "@")
		for _, name := range []string{i.Name, repo + "@" + i.Digest.String()} {
			if got, ok, err := a.Find(name); err != nil || !ok || got.Digest != i.Digest {
				t.Errorf("%s: got %v, %v, %v; want %s", name, got, ok, err, i.Digest)
			}
		}
	}
	return a
}

// layers are those of a platform's images among the contents of a tar.
func layersIn(contents []string) (out []string) {
	for _, content := range contents {
		if !strings.HasPrefix(content, "{") {
			out = append(out, content)
		}
	}
	slices.Sort(out)
	return out
}
