package imagecontent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

const (
	manifestType = ocispec.MediaTypeImageManifest
	indexType    = ocispec.MediaTypeImageIndex
	configType   = ocispec.MediaTypeImageConfig
	layerType    = ocispec.MediaTypeImageLayerGzip
)

// documents is containerd's store, with documents only.
type documents struct {
	content.Store
	texts map[digest.Digest][]byte
}

type text struct{ *bytes.Reader }

func (text) Close() error { return nil }

func (d documents) ReaderAt(_ context.Context, blob ocispec.Descriptor) (content.ReaderAt, error) {
	if b, ok := d.texts[blob.Digest]; ok {
		return text{bytes.NewReader(b)}, nil
	}
	return nil, errdefs.ErrNotFound
}

// put stores a document, and describes it truthfully.
func (d documents) put(mediaType string, document map[string]any) ocispec.Descriptor {
	b, err := json.Marshal(document)
	if err != nil {
		panic(err) // strings and numbers only
	}
	d.texts[digest.FromBytes(b)] = b
	return ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(b), Size: int64(len(b))}
}

func (d documents) image(config ocispec.Descriptor, layers any) ocispec.Descriptor {
	return d.put(manifestType, map[string]any{"config": config, "layers": layers})
}

// of makes an image of layers, which its configuration knows.
func (d documents) of(layers ...ocispec.Descriptor) ocispec.Descriptor {
	var diffs []digest.Digest
	for _, l := range layers {
		diffs = append(diffs, l.Digest)
	}
	return d.image(d.put(configType, map[string]any{"rootfs": map[string]any{"diff_ids": diffs}}), layers)
}

// platformed makes an image without layers, whose configuration is for a platform.
func (d documents) platformed(os, architecture string) ocispec.Descriptor {
	return d.image(d.put(configType, map[string]any{"os": os, "architecture": architecture}), nil)
}

func (d documents) index(manifests any) ocispec.Descriptor {
	return d.put(indexType, map[string]any{"manifests": manifests})
}

// described is a descriptor of content that is not there.
func described(mediaType string, size int64) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromString(mediaType), Size: size}
}

// partsOf reads an image, and returns what it had fetched for that.
func (d documents) partsOf(target ocispec.Descriptor) (got Content, fetched []digest.Digest, err error) {
	got, err = Reader{Store: d}.PartsOf(context.Background(), target, func(_ context.Context, blob ocispec.Descriptor) error {
		fetched = append(fetched, blob.Digest)
		return nil
	})
	return got, fetched, err
}

// TestDocumentsThatLie are refused before what they refer to is fetched.
func TestDocumentsThatLie(t *testing.T) {
	words := func(n int) json.RawMessage { return json.RawMessage("[{}" + strings.Repeat(",{}", n-1) + "]") }
	some := described(layerType, 100)
	outside, lost := some, described(configType, 100)
	outside.Digest = "sha256:../../x"
	tests := map[string]func(documents) ocispec.Descriptor{
		"a layer that overflows":            func(d documents) ocispec.Descriptor { return d.of(described(layerType, 3e18)) },
		"a layer of less than none":         func(d documents) ocispec.Descriptor { return d.of(some, described(layerType, -1<<50)) },
		"a layer that is no digest":         func(d documents) ocispec.Descriptor { return d.of(outside) },
		"a child manifest of a terabyte":    func(d documents) ocispec.Descriptor { return d.index([]any{described(manifestType, 1<<40)}) },
		"a child manifest of no size":       func(d documents) ocispec.Descriptor { return d.index([]any{described(manifestType, 0)}) },
		"a configuration of 256 MB":         func(d documents) ocispec.Descriptor { return d.image(described(configType, 256<<20), nil) },
		"a configuration of less than none": func(d documents) ocispec.Descriptor { return d.image(described(configType, -5), nil) },
		"20,000 times the same layer": func(d documents) ocispec.Descriptor {
			return d.of(slices.Repeat([]ocispec.Descriptor{some}, 20_000)...)
		},
		"a million layers without a word":    func(d documents) ocispec.Descriptor { return d.image(lost, words(1_000_000)) },
		"a million manifests without a word": func(d documents) ocispec.Descriptor { return d.index(words(1_000_000)) },
		"a configuration for other layers": func(d documents) ocispec.Descriptor {
			return d.image(d.put(configType, map[string]any{"rootfs": map[string]any{"diff_ids": []digest.Digest{some.Digest}}}), nil)
		},
		"a configuration with a digest that is none": func(d documents) ocispec.Descriptor {
			return d.image(d.put(configType, map[string]any{"rootfs": map[string]any{"diff_ids": []string{"x"}}}), []any{some})
		},
		"a manifest that is an index, too": func(d documents) ocispec.Descriptor {
			return d.put(manifestType, map[string]any{"config": lost, "manifests": []any{}})
		},
		"a manifest that says it is an index": func(d documents) ocispec.Descriptor {
			return d.put(manifestType, map[string]any{"config": lost, "mediaType": indexType})
		},
		"an index that is a manifest, too": func(d documents) ocispec.Descriptor {
			return d.put(indexType, map[string]any{"manifests": []any{described(manifestType, 100)}, "layers": nil})
		},
		"an index that says it is a manifest": func(d documents) ocispec.Descriptor {
			return d.put(indexType, map[string]any{"manifests": []any{described(manifestType, 100)}, "mediaType": manifestType})
		},
		"a manifest of the first format": func(d documents) ocispec.Descriptor {
			return d.put(manifestType, map[string]any{"config": lost, "fsLayers": []any{}})
		},
		"indexes in indexes": func(d documents) ocispec.Descriptor {
			found := d.of()
			for range indexesAtMost + 1 {
				found = d.index([]any{found})
			}
			return found
		},
	}
	for name, image := range tests {
		t.Run(name, func(t *testing.T) {
			d := documents{texts: map[digest.Digest][]byte{}}
			_, fetched, err := d.partsOf(image(d))
			if e, ok := errors.AsType[*engineapi.Error](err); !ok || e.Reason != engineapi.Corrupt {
				t.Errorf("got %v", err)
			}
			for _, f := range fetched {
				if d.texts[f] == nil {
					t.Errorf("%s was asked for", f)
				}
			}
		})
	}
}

// TestURLsOfLayers are not read: no address is asked that only the image names.
func TestURLsOfLayers(t *testing.T) {
	d := documents{texts: map[digest.Digest][]byte{}}
	layer := described(layerType, 100)
	layer.URLs, layer.Data = []string{"http://169.254.169.254/"}, []byte("x")
	image := d.of(layer)
	image.Platform = &ocispec.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH}
	collection := d.index([]any{image})
	for range indexesAtMost - 1 {
		collection = d.index([]any{collection})
	}
	got, _, err := d.partsOf(collection)
	if err != nil || len(got.Layers) != 1 || got.Layers[0].Digest != layer.Digest || got.Layers[0].URLs != nil || got.Layers[0].Data != nil {
		t.Errorf("got %+v, %v", got.Layers, err)
	}
}

func TestTheImageForThisPlatformIsChosen(t *testing.T) {
	d := documents{texts: map[digest.Digest][]byte{}}
	manifest := func(os string) ocispec.Descriptor {
		m := d.of(ocispec.Descriptor{MediaType: layerType, Digest: digest.FromString(os), Size: 100})
		m.Platform = &ocispec.Platform{OS: os, Architecture: runtime.GOARCH}
		return m
	}
	mine, hostile := manifest("linux"), manifest("plan9")
	hostile.Platform.Architecture = "\x1b[2J\r\nall is well\u202e"
	got, fetched, err := d.partsOf(d.index([]any{hostile, mine}))
	if err != nil || got.Manifest.Digest != mine.Digest || slices.Contains(fetched, hostile.Digest) {
		t.Errorf("got %+v after fetching %v, %v", got.Manifest, fetched, err)
	}
	_, _, err = d.partsOf(d.index(slices.Repeat([]ocispec.Descriptor{hostile}, MaxLayers)))
	e, ok := errors.AsType[*engineapi.Error](err)
	if !ok || e.Reason != engineapi.WrongPlatform || !strings.Contains(e.Error(), "linux/"+runtime.GOARCH) || !strings.Contains(e.Error(), "plan9/") {
		t.Fatalf("got %v", err)
	}
	if text := e.Error(); len(text) > 1024 || strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
		t.Errorf("got %d bytes: %.200q", len(text), text)
	}
}

// TestIndexWithoutPlatforms is read as containerd reads it when kubelet pulls: an image that is Ready must not be
// one that containerd does not find.
func TestIndexWithoutPlatforms(t *testing.T) {
	d := documents{texts: map[digest.Digest][]byte{}}
	mine, foreign, unknown := d.platformed(runtime.GOOS, runtime.GOARCH), d.platformed(runtime.GOOS, "s390x"), d.platformed("", "")
	named := foreign
	named.Platform = &ocispec.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH}
	for name, tt := range map[string]struct {
		image ocispec.Descriptor
		want  ocispec.Descriptor // none: there is none for this platform
	}{
		"the first is for this platform":           {d.index([]any{mine, foreign}), mine},
		"the first is for another platform":        {d.index([]any{foreign, mine}), ocispec.Descriptor{}},
		"the first does not tell either":           {d.index([]any{unknown, mine}), ocispec.Descriptor{}},
		"in another index":                         {d.index([]any{d.index([]any{foreign})}), ocispec.Descriptor{}},
		"one behind it names this platform":        {d.index([]any{mine, named}), named},
		"no index, and for another platform":       {foreign, foreign},
		"for another platform than the index says": {d.index([]any{named}), named},
	} {
		t.Run(name, func(t *testing.T) {
			theirs, err := images.Config(t.Context(), d, tt.image, platforms.Default())
			if (err == nil) != (tt.want.Digest != "") {
				t.Fatalf("containerd finds %s, %v", theirs.Digest, err)
			}
			got, _, err := d.partsOf(tt.image)
			if tt.want.Digest == "" {
				if e, ok := errors.AsType[*engineapi.Error](err); !ok || e.Reason != engineapi.WrongPlatform {
					t.Errorf("got %s, %v", got.Manifest.Digest, err)
				}
				return
			}
			if err != nil || got.Manifest.Digest != tt.want.Digest || got.Config.Digest != theirs.Digest {
				t.Errorf("got %s with the configuration %s, %v; containerd finds %s", got.Manifest.Digest, got.Config.Digest, err, theirs.Digest)
			}
		})
	}
}

// TestAnIndexOfSomethingElse is refused before that is asked for: the registry would say that it is missing.
func TestAnIndexOfSomethingElse(t *testing.T) {
	d := documents{texts: map[digest.Digest][]byte{}}
	artifact := d.put("application/vnd.oci.artifact.manifest.v1+json", map[string]any{})
	_, fetched, err := d.partsOf(d.index([]any{artifact}))
	if e, ok := errors.AsType[*engineapi.Error](err); !ok || !strings.Contains(e.Error(), artifact.MediaType) || slices.Contains(fetched, artifact.Digest) {
		t.Errorf("after %v: %v", fetched, err)
	}
}
