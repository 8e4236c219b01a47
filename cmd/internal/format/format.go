// Package format joins parts of sentences.
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
