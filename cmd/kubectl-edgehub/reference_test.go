package main

import (
	"testing"

	"github.com/edgehub-io/edgehub/cmd/internal/reference"
)

func TestFlagsReference(t *testing.T) {
	if err := reference.Check("flags.md", name, reference.ProgramFlags(new(call).program())); err != nil {
		t.Error(err)
	}
}
