package cache

import (
	"math/big"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// compare orders two resourceVersions. The empty one, which nothing has, comes
// before all others; what is no version is treated like it.
func compare(a, b string) int {
	n, err := resourceversion.CompareResourceVersion(a, b)
	if err == nil {
		return n
	}
	return rank(a) - rank(b)
}

func rank(version string) int {
	if isVersion(version) {
		return 1
	}
	return 0
}

// isVersion reports whether v names a state, which "" and "0" do not.
func isVersion(v string) bool {
	_, err := resourceversion.CompareResourceVersion(v, v)
	return err == nil
}

// higher returns the higher of two versions.
func higher(a, b string) string {
	if compare(a, b) >= 0 {
		return a
	}
	return b
}

// preceding is the highest version below another.
func preceding(version string) string {
	n, ok := new(big.Int).SetString(version, 10)
	if !ok {
		return ""
	}
	return n.Sub(n, big.NewInt(1)).String()
}

// following is the lowest version above another.
func following(version string) string {
	n, ok := new(big.Int).SetString(version, 10)
	if !ok {
		return "1"
	}
	return n.Add(n, big.NewInt(1)).String()
}
