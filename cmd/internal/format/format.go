// Package format formats sentences and tables for people.
package format

import (
	"slices"
	"strings"
)

// Joined returns the parts that are not empty, with commas between them.
func Joined(parts ...string) string {
	isEmpty := func(part string) bool { return part == "" }
	return strings.Join(slices.DeleteFunc(slices.Clone(parts), isEmpty), ", ")
}
