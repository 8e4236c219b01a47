// Package versions compares resourceVersions, which are decimal numbers of any length. The empty
// string is the version of what was never seen.
package versions

import (
	"math/big"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Compare orders two resourceVersions. The empty one, and anything that is not a version, comes
// before all others.
func Compare(a, b string) int {
	n, err := resourceversion.CompareResourceVersion(a, b)
	if err == nil {
		return n
	}
	return rank(a) - rank(b)
}

func rank(version string) int {
	if Valid(version) {
		return 1
	}
	return 0
}

// Valid reports whether v is a version: "" and "0" are not.
func Valid(v string) bool {
	_, err := resourceversion.CompareResourceVersion(v, v)
	return err == nil
}

// Higher returns the higher of two versions.
func Higher(a, b string) string {
	if Compare(a, b) >= 0 {
		return a
	}
	return b
}

// Preceding is the highest version below another.
func Preceding(version string) string {
	n, ok := new(big.Int).SetString(version, 10)
	if !ok {
		return ""
	}
	return n.Sub(n, big.NewInt(1)).String()
}

// Following is the lowest version above another.
func Following(version string) string {
	n, ok := new(big.Int).SetString(version, 10)
	if !ok {
		return "1"
	}
	return n.Add(n, big.NewInt(1)).String()
}
