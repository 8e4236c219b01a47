package imagecontent

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

func TestBoundedLists(t *testing.T) {
	list := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("{},", n), ",") + "]" }
	tests := map[string]struct {
		text string
		want int
		err  bool
	}{
		"null":                              {text: "null"},
		"an empty list":                     {text: "[]"},
		"as many elements as allowed":       {text: list(MaxLayers), want: MaxLayers},
		"one element too many":              {text: list(MaxLayers + 1), err: true},
		"an object in place of a list":      {text: "{}", err: true},
		"a number in place of a descriptor": {text: "[1]", err: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got bounded[descriptor]
			err := json.Unmarshal([]byte(tt.text), &got)
			if (err != nil) != tt.err || err == nil && len(got) != tt.want {
				t.Errorf("got %d, %v", len(got), err)
			}
		})
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

// TestDescriptor reads nothing that would have the node fetch from elsewhere, or believe
// what was not checked.
func TestDescriptor(t *testing.T) {
	var d descriptor
	text := `{"mediaType":"x","digest":"sha256:1","size":5,"urls":["http://169.254.169.254/"],"data":"eA==","platform":{"os":"linux","architecture":"arm64"}}`
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	got := d.whole()
	if got.URLs != nil || got.Data != nil || got.Size != 5 || got.MediaType != "x" || got.Platform == nil || got.Platform.Architecture != "arm64" {
		t.Errorf("got %+v", got)
	}
}

func TestCheckBlob(t *testing.T) {
	tests := map[string]struct {
		blob            ocispec.Descriptor
		layer, document bool // whether it may be one
	}{
		"a usual size":             {blob: ocispec.Descriptor{Size: 1000}, layer: true, document: true},
		"too large for a document": {blob: ocispec.Descriptor{Size: DocumentLimit + 1}, layer: true},
		"the largest layer":        {blob: ocispec.Descriptor{Size: blobLimit}, layer: true},
		"too large for a layer":    {blob: ocispec.Descriptor{Size: blobLimit + 1}},
		"an empty blob":            {blob: ocispec.Descriptor{Size: 0}},
		"a negative size":          {blob: ocispec.Descriptor{Size: -1 << 50}},
		"an invalid digest":        {blob: ocispec.Descriptor{Size: 1000, Digest: "sha256:../x"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.blob.Digest == "" {
				tt.blob.Digest = digest.FromString("x")
			}
			for what, got := range map[string]struct {
				err  error
				want bool
			}{"layer": {checkBlob(tt.blob), tt.layer}, "document": {checkDocument(tt.blob), tt.document}} {
				e, failed := errors.AsType[*engineapi.Error](got.err)
				if failed == got.want || failed && e.Reason != engineapi.Corrupt {
					t.Errorf("as a %s: %v", what, got.err)
				}
			}
		})
	}
}
