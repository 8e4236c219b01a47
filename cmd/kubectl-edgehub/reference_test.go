package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/edgehub-io/edgehub/cmd/internal/reference"
)

func TestFlagsReference(t *testing.T) {
	fs := new(options).flags()
	fs.SortFlags = false
	fs.VisitAll(func(f *pflag.Flag) {
		var takers []string
		for _, verb := range []string{"status", "nodes"} {
			if slices.Contains(commands()[verb].takes, f.Name) {
				takers = append(takers, verb)
			}
		}
		if takers != nil {
			f.Usage = strings.Join(takers, ", ") + ": " + f.Usage
		}
	})
	if err := reference.Check("flags.md", name, reference.Flags(fs)); err != nil {
		t.Error(err)
	}
}
