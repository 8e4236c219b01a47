package imagetar

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/opencontainers/go-digest"
)

func TestWhatNodesPullIsInTheTar(t *testing.T) {
	tests := map[string]struct {
		image     func(g *rig) remote.Taggable
		platforms []string
		want      string // layers
	}{
		"one platform of an index":          {func(g *rig) remote.Taggable { return g.multi("linux/amd64", "linux/arm64") }, []string{"linux/arm64"}, "linux/arm64 shared"},
		"two platforms":                     {func(g *rig) remote.Taggable { return g.multi("linux/amd64", "linux/arm64", "linux/s390x") }, []string{"linux/arm64", "linux/amd64"}, "linux/amd64 linux/arm64 shared"},
		"the same twice":                    {func(g *rig) remote.Taggable { return g.multi("linux/amd64") }, []string{"linux/amd64", "linux/amd64"}, "linux/amd64 shared"},
		"arm64 before what it runs as well": {func(g *rig) remote.Taggable { return g.multi("linux/arm/v7", "linux/arm64") }, []string{"linux/arm64"}, "linux/arm64 shared"},
		"32-bit ARM, where that is all":     {func(g *rig) remote.Taggable { return g.multi("linux/arm/v6", "linux/arm/v7") }, []string{"linux/arm64"}, "linux/arm/v7 shared"},
		"an older variant":                  {func(g *rig) remote.Taggable { return g.multi("linux/arm/v7", "linux/arm/v6") }, []string{"linux/arm/v6"}, "linux/arm/v6 shared"},
		"one manifest":                      {func(g *rig) remote.Taggable { return g.image("linux/arm64", "a", "b", "a") }, []string{"linux/arm64"}, "a b"},
		"a manifest that does not say":      {func(g *rig) remote.Taggable { return g.image("linux", "a") }, []string{"linux/arm64"}, "a"},
		"an index that does not say":        {func(g *rig) remote.Taggable { return index(of("", g.image("linux/arm64", "a"))) }, []string{"linux/arm64"}, "a"},
		"an index that says it of another one": {func(g *rig) remote.Taggable {
			return index(of("", g.image("linux/arm64", "a")), of("linux/arm64", g.image("linux/arm64", "b")))
		}, []string{"linux/arm64"}, "b"},
		"an index in an index": {func(g *rig) remote.Taggable { return index(of("", g.multi("linux/amd64", "linux/arm64"))) }, []string{"linux/arm64"}, "linux/arm64 shared"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			images, err := g.resolve(tt.platforms, g.push("app:1", tt.image(g)))
			if err != nil {
				t.Fatal(err)
			}
			file, err := g.write(images)
			if err != nil {
				t.Fatal(err)
			}
			open(t, file, images...)
			names, contents := members(t, file)
			if got := strings.Join(layersIn(contents), " "); got != tt.want {
				t.Errorf("got the layers %s, want %s", got, tt.want)
			}
			var size int64
			for i, name := range names {
				if hex, ok := strings.CutPrefix(name, "blobs/sha256/"); ok {
					size += int64(len(contents[i]))
					if hex != digest.FromString(contents[i]).Encoded() {
						t.Errorf("%s is %.100q", name, contents[i])
					}
				}
			}
			if got := images[0].Size(); got != size {
				t.Errorf("its size is %d, want %d", got, size)
			}
		})
	}
}

// TestEveryARM takes of an index all that a node may pull whose variant nobody knows.
func TestEveryARM(t *testing.T) {
	g := newRig(t)
	i, err := g.source.Resolve(t.Context(), g.push("app:1", g.multi("linux/arm/v6", "linux/arm/v7", "linux/arm64")), []Platform{{OS: "linux", Architecture: "arm"}})
	if err != nil {
		t.Fatal(err)
	}
	file, err := g.write([]*Image{i})
	if err != nil {
		t.Fatal(err)
	}
	_, contents := members(t, file)
	if got := strings.Join(layersIn(contents), " "); got != "linux/arm/v6 linux/arm/v7 shared" {
		t.Errorf("got the layers %s", got)
	}
}

func TestTheOrderOfTheTar(t *testing.T) {
	g := newRig(t)
	one, two := g.push("one:1", g.image("linux/arm64", "shared", "one")), g.push("two:1", g.image("linux/arm64", "shared", "two"))
	images, err := g.resolve([]string{"linux/arm64"}, one, two)
	if err != nil {
		t.Fatal(err)
	}
	for what, tt := range map[string]struct {
		images []*Image
		blobs  int
	}{"no image": {nil, 0}, "two with a layer of both": {images, 7}} {
		file, err := g.write(tt.images)
		if err != nil {
			t.Fatal(err)
		}
		names, contents := members(t, file)
		last := len(names) - 1
		if !slices.Equal(names[:2], []string{"first.json", "oci-layout"}) || names[last] != "index.json" || last-2 != tt.blobs {
			t.Errorf("%s: the tar has %q; want %d blobs", what, names, tt.blobs)
		}
		if contents[1] != `{"imageLayoutVersion":"1.0.0"}` || tt.images == nil && contents[last] != `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}` {
			t.Errorf("%s: got %s and %s", what, contents[1], contents[last])
		}
		if got, _ := open(t, file, tt.images...).Names(); len(got) != len(tt.images) {
			t.Errorf("%s: it has the images %q", what, got)
		}
	}
}

func TestProgress(t *testing.T) {
	g := newRig(t)
	images, err := g.resolve([]string{"linux/arm64"}, g.push("one:1", g.image("linux/arm64", "shared", "one")), g.push("two:1", g.image("linux/arm64", "shared", "two")))
	if err != nil {
		t.Fatal(err)
	}
	var last, total int64
	err = Write(t.Context(), &strings.Builder{}, File{}, images, func(done, of int64) {
		if done < last || total != 0 && of != total {
			t.Errorf("%d of %d follows %d of %d", done, of, last, total)
		}
		last, total = done, of
	})
	if want := images[0].Size() + images[1].Size() - int64(len("shared")); err != nil || last != want || total != want {
		t.Errorf("it ended at %d of %d with %v, want %d", last, total, err, want)
	}
}

func TestTwoNamesOfOneImage(t *testing.T) {
	g := newRig(t)
	d, err := g.image("linux/arm64", "a").Digest()
	if err != nil {
		t.Fatal(err)
	}
	tagged := g.push("app:latest", g.image("linux/arm64", "a"))
	pinned := g.host + "/app@" + d.String()
	images, err := g.resolve([]string{"linux/arm64"}, tagged, g.host+"/app", pinned, g.host+"/app:1@"+d.String())
	if err != nil {
		t.Fatal(err)
	}
	if images[0] != images[1] || images[2] != images[3] || images[0] == images[2] || images[2].Name != pinned || images[0].Digest != images[2].Digest {
		t.Errorf("got %v", images)
	}
}

func TestWhatIsRefused(t *testing.T) {
	foreign := func(kind types.MediaType) func(g *rig) string {
		return func(g *rig) string {
			i, err := mutate.AppendLayers(g.image("linux/arm64", "a"), static.NewLayer([]byte("x"), kind))
			if err != nil {
				g.t.Fatal(err)
			}
			return g.push("app:1", i)
		}
	}
	pushed := func(image func(g *rig) remote.Taggable) func(g *rig) string {
		return func(g *rig) string { return g.push("app:1", image(g)) }
	}
	// sends has the registry send something else instead of the layer, or of its manifest.
	sends := func(kind, instead string) func(g *rig) string {
		return func(g *rig) string {
			name := g.push("app:1", g.multi("linux/arm64"))
			layer := digest.FromString("linux/arm64").String()
			g.answer = func(w http.ResponseWriter, r *http.Request) bool {
				is := r.Method == http.MethodGet && strings.Contains(r.URL.Path, kind) && (kind == "/manifests/sha256:" || strings.HasSuffix(r.URL.Path, layer))
				if is {
					_ = http.NewResponseController(w).Flush() // without a length
					_, _ = w.Write([]byte(instead))
				}
				return is
			}
			return name
		}
	}
	tests := map[string]struct {
		image func(g *rig) string
		says  string
	}{
		"no name":                             {func(*rig) string { return "App" }, "not the name of an image"},
		"no such image":                       {func(g *rig) string { return g.host + "/app:1" }, "app:1: GET"},
		"a registry that does not let in":     {func(g *rig) string { g.answer = denied; return g.host + "/app:1" }, "is there a login, as by docker login 127.0.0.1"},
		"an index without the platform":       {pushed(func(g *rig) remote.Taggable { return g.multi("linux/amd64", "linux/s390x") }), `app:1: it has no manifest for linux/arm64; it has "linux/amd64, linux/s390x"`},
		"an index of nothing":                 {pushed(func(*rig) remote.Taggable { return index() }), `it has "none"`},
		"a manifest for another":              {pushed(func(g *rig) remote.Taggable { return g.image("linux/amd64", "a") }), `it has no manifest for linux/arm64; it is for "linux/amd64"`},
		"an index with one for another":       {pushed(func(g *rig) remote.Taggable { return index(of("", g.image("linux/amd64", "a"))) }), `it is for "linux/amd64"`},
		"a layer that is foreign":             {foreign(types.DockerForeignLayer), "may not be in a file"},
		"a layer that may not be distributed": {foreign("application/vnd.oci.image.layer.nondistributable.v1.tar+zstd"), "may not be in a file"},
		"another digest": {func(g *rig) string {
			return g.push("app:1", g.multi("linux/arm64")) + "@" + digest.FromString("x").String()
		}, "MANIFEST_UNKNOWN"},
		"another image by that digest": {sends("/manifests/sha256:", "{}"), "does not match requested digest"},
		"a layer of other bytes":       {sends("/blobs/", "linux/arm65"), "copy " + digest.FromString("linux/arm64").String() + ": error verifying sha256 checksum"},
		"a layer with more":            {sends("/blobs/", "linux/arm64 and more"), "another number of bytes than the 11"},
		"a layer that is cut":          {sends("/blobs/", "linux/arm"), "error verifying sha256 checksum"},
		"a manifest of another size": {func(g *rig) string {
			i := of("linux/arm64", g.image("linux/arm64", "a"))
			i.Size = 10_000
			return g.push("app:1", index(i))
		}, "another number of bytes than the 10000"},
		"a manifest without digests": {func(g *rig) string {
			name := g.host + "/app:1"
			g.answer = func(w http.ResponseWriter, r *http.Request) bool {
				w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
				_, _ = w.Write([]byte(`{"config":{"digest":"sha256:../../../x","size":1}}`))
				return true
			}
			return name
		}, "without a digest and a size"},
		"what is no image": {func(g *rig) string {
			g.answer = func(w http.ResponseWriter, r *http.Request) bool {
				w.Header().Set("Content-Type", "text/html")
				return true
			}
			return g.host + "/app:1"
		}, `it is no image, but "text/html"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			images, err := g.resolve([]string{"linux/arm64"}, tt.image(g))
			if err == nil {
				_, err = g.write(images)
			}
			if err == nil || !strings.Contains(err.Error(), tt.says) || !strings.HasPrefix(err.Error(), "image ") {
				t.Errorf("got %v, want it to say %q", err, tt.says)
			}
		})
	}
}

func denied(w http.ResponseWriter, r *http.Request) bool {
	if r.URL.Path == "/v2/" {
		return false
	}
	w.WriteHeader(http.StatusUnauthorized)
	return true
}

// TestInterrupted ends while the registry sends nothing more.
func TestInterrupted(t *testing.T) {
	g := newRig(t)
	images, err := g.resolve([]string{"linux/arm64"}, g.push("app:1", g.image("linux/arm64", "a")))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	g.answer = func(_ http.ResponseWriter, r *http.Request) bool {
		cancel()
		<-r.Context().Done()
		return true
	}
	if err := Write(ctx, &strings.Builder{}, File{}, images, func(int64, int64) {}); err == nil || ctx.Err() == nil {
		t.Errorf("got %v", err)
	}
}

func TestPlatforms(t *testing.T) {
	for text, want := range map[string]string{"linux/arm64": "linux/arm64", "linux/arm": "linux/arm", "linux/arm/v7": "linux/arm/v7", "Linux/aarch64": "linux/arm64", "linux/arm/v6": "linux/arm/v6", "arm64": "", "": "", "linux/": "", "linux/a/b/c": ""} {
		got, err := ParsePlatform(text)
		if (err != nil) != (want == "") || err == nil && got.String() != want {
			t.Errorf("%q: got %v, %v; want %q", text, got, err, want)
		}
	}
}
