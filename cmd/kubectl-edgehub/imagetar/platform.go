package imagetar

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Platform is what nodes run. linux/arm is 32-bit ARM of every variant: the status of a Node does not have that.
type Platform struct{ OS, Architecture, Variant string }

// ParsePlatform reads OS/ARCHITECTURE[/VARIANT].
func ParsePlatform(text string) (Platform, error) {
	p, err := platforms.Parse(text)
	if err != nil || !strings.Contains(text, "/") { // without, it would be of the OS of this machine
		return Platform{}, fmt.Errorf("%q is no platform such as linux/arm64 or linux/arm/v7", text)
	}
	return Platform{p.OS, p.Architecture, p.Variant}, nil
}

func (p Platform) String() string { return platforms.Format(p.spec()) }

func (p Platform) spec() ocispec.Platform {
	return ocispec.Platform{OS: p.OS, Architecture: p.Architecture, Variant: p.Variant}
}

func (p Platform) everyARM() bool { return p.Architecture == "arm" && p.Variant == "" }

// matcher returns what containerd goes by on a node of p: it runs older variants as well.
func (p Platform) matcher() platforms.MatchComparer {
	if p.everyARM() {
		p.Variant = "v8" // the newest
	}
	return platforms.Only(p.spec())
}

// choose returns those of an index that nodes pull: the one that containerd prefers, see package imagepull/engine/imagecontent; all that may
// be it of every ARM.
func (p Platform) choose(all []ocispec.Descriptor) []ocispec.Descriptor {
	want := p.matcher()
	suitable := slices.DeleteFunc(slices.Clone(all), func(d ocispec.Descriptor) bool { return d.Platform != nil && !want.Match(*d.Platform) })
	if p.everyARM() || len(suitable) == 0 {
		return suitable
	}
	best := suitable[0]
	for _, d := range suitable[1:] {
		if d.Platform != nil && (best.Platform == nil || want.Less(*d.Platform, *best.Platform)) {
			best = d
		}
	}
	return []ocispec.Descriptor{best}
}

// platformsOf returns the platforms of an index, for people.
func platformsOf(all []ocispec.Descriptor) string {
	var out []string
	for _, d := range all {
		if d.Platform != nil && d.Platform.OS != "unknown" { // as of attestations
			out = append(out, platforms.Format(*d.Platform))
		}
	}
	return cmp.Or(strings.Join(slices.Compact(out), ", "), "none")
}
