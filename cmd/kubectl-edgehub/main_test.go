package main

import (
	"context"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/edgehub-io/edgehub/cmd/internal/completion/completiontest"
)

// The test is also the program, for tests that start it.
func TestMain(m *testing.M) {
	if program := completiontest.Program(); program != "" {
		os.Exit(int(run(context.Background(), program, os.Args[1:], streams{os.Stdout, os.Stderr})))
	}
	goleak.VerifyTestMain(m)
}
