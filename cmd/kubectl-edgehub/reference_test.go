package main

import (
	"slices"
	"testing"

	"github.com/spf13/pflag"

	"github.com/edgehub-io/edgehub/cmd/internal/reference"
)

func TestFlagsReference(t *testing.T) {
	fs := new(options).flags()
	fs.SortFlags = false
	fs.VisitAll(func(f *pflag.Flag) {
		if slices.Contains(statusFlags(), f.Name) {
			f.Usage = "status: " + f.Usage
		}
	})
	if err := reference.Check("flags.md", name, reference.Flags(fs)); err != nil {
		t.Error(err)
	}
}
