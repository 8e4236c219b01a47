// Package rollback_test lets the owner of a node go back to earlier revisions: a hub that is a process
// of its own, a real apiserver and controller manager, and a controller with the rights of deploy/.
// The test's fleet plays kubelet.
package rollback_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/rolloutenv"
)

// moduleRoot is the product's, seen from this folder.
const moduleRoot = "../../.."

// Shared by all tests.
var (
	s      *rolloutenv.Env
	hubBin string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "edgehub-rollback-test-")
	if err == nil {
		defer os.RemoveAll(dir)
		hubBin, err = hubproc.Build(context.Background(), moduleRoot, dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return rolloutenv.Main(m, moduleRoot, 0, func(started *rolloutenv.Env) { s = started })
}
