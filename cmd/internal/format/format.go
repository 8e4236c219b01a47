// Package format puts sentences for people together.
package format

import "strings"

// Joined returns the parts that are not empty, with commas between them.
func Joined(parts ...string) string {
	var out []string
	for _, p := range parts {
		if p != "" {
			out = append(out, p)
		}
	}
	return strings.Join(out, ", ")
}
