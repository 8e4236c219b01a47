package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/edgehub-io/edgehub/cmd/internal/reference"
)

func TestFlagsReference(t *testing.T) {
	t.Setenv("EDGEHUB_ADDRESS", "")
	fs := new(options).flags()
	fs.SortFlags = false
	fs.VisitAll(func(f *pflag.Flag) {
		var takes []string
		for _, c := range commands() {
			if slices.Contains(c.flags, f.Name) {
				takes = append(takes, c.name)
			}
		}
		if len(takes) > 0 {
			f.Usage = strings.Join(takes, ", ") + ": " + f.Usage
		}
	})
	if err := reference.Check("flags.md", name, reference.Flags(fs)); err != nil {
		t.Error(err)
	}
}
