package patch

import "k8s.io/apimachinery/pkg/util/resourceversion"

// Older reports whether an object at version a is older than one at version b. One
// without a version is never older. Versions that cannot be compared are not the same
// unless they are equal: of those, a is the older one.
func Older(a, b string) bool {
	if a == "" || b == "" || a == b {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err != nil || order < 0
}
