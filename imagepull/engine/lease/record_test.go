package lease

import (
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

func TestReleasedLabels(t *testing.T) {
	mine, other := HolderLabel("mine"), HolderLabel("other")
	tests := map[string]struct {
		labels map[string]string
		want   []string
	}{
		"a record that nobody retains": {map[string]string{managedLabel: managed, pinnedLabel: pinned}, nil},
		"a record that another image retains": {
			map[string]string{other: "other", pinLabel: "other", pinnedLabel: pinned}, nil,
		},
		"a record that only this image retains": {
			map[string]string{mine: "mine", pinLabel: "mine", pinnedLabel: pinned, managedLabel: managed},
			[]string{"labels." + mine, "labels." + pinLabel, "labels." + pinnedLabel},
		},
		"a record that both images retain": {
			map[string]string{mine: "mine", other: "other", pinLabel: "mine", pinnedLabel: pinned},
			[]string{"labels." + mine},
		},
		"a record that another program has pinned": {
			map[string]string{mine: "mine", pinnedLabel: pinned},
			[]string{"labels." + mine},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := released(tt.labels, "mine"); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

const someDigest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestRecordNames(t *testing.T) {
	const id = "sha256:id"
	for image, want := range map[string][]string{
		"nginx:1":             {id, "docker.io/library/nginx@" + someDigest, "docker.io/library/nginx:1"},
		"nginx@" + someDigest: {id, "docker.io/library/nginx@" + someDigest},
	} {
		named, err := engineapi.Parse(image)
		if err != nil {
			t.Fatal(err)
		}
		if got := RecordNames(named, digest.Digest(someDigest), id); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", image, got, want)
		}
	}
}

// TestLeaseID stays what it is: an older version's leases must be found.
func TestLeaseID(t *testing.T) {
	if got := leaseID("docker.io/library/nginx:latest"); got != "edgehub-prepull-86cee2c10898a48ff47a0626" {
		t.Errorf("got %s", got)
	}
	if a, b := leaseID("a"), leaseID("b"); a == b || !strings.HasPrefix(HolderLabel("a"), retainedLabel+".") {
		t.Errorf("got %s and %s", a, b)
	}
}
