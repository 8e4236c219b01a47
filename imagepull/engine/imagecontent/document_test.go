package imagecontent

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

func TestBoundedLists(t *testing.T) {
	list := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("{},", n), ",") + "]" }
	for text, want := range map[string]int{"null": 0, "[]": 0, list(MaxLayers): MaxLayers, list(MaxLayers + 1): -1, "{}": -1, "[1]": -1} {
		var got bounded[descriptor]
		err := json.Unmarshal([]byte(text), &got)
		if (err != nil) != (want < 0) || err == nil && len(got) != want {
			t.Errorf("%.20s…: got %d, %v; want %d", text, len(got), err, want)
		}
	}
}

// TestListThereTwice is read as containerd reads it.
func TestListThereTwice(t *testing.T) {
	var ours struct{ Layers bounded[digest.Digest] }
	var theirs struct{ Layers []digest.Digest }
	text := []byte(`{"layers":["a","b","c"],"layers":["d"]}`)
	if err := errors.Join(json.Unmarshal(text, &ours), json.Unmarshal(text, &theirs)); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(ours.Layers, theirs.Layers) {
		t.Errorf("got %v, want %v", ours.Layers, theirs.Layers)
	}
}

func TestCheckBlob(t *testing.T) {
	for size, want := range map[int64]struct{ layer, document bool }{
		1000: {true, true}, DocumentLimit: {true, true}, DocumentLimit + 1: {true, false}, blobLimit: {true, false},
		blobLimit + 1: {}, 0: {}, -1 << 50: {},
	} {
		blob := ocispec.Descriptor{Size: size, Digest: digest.FromString("x")}
		if layer, document := checkBlob(blob), checkDocument(blob); (layer == nil) != want.layer || (document == nil) != want.document {
			t.Errorf("%d bytes: as a layer %v, as a document %v", size, layer, document)
		}
	}
}
