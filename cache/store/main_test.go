package store_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashFolder); dir != "" {
		fmt.Fprintln(os.Stderr, commitUntilKilled(dir, os.Stdout))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}
