// Command edgehubctl shows the owner of a node what its pods need, and has it done:
// pull the images of a new version ahead, and upgrade. It speaks to the hub on the
// node it runs on, through the API on loopback, and needs no kubeconfig and no
// cloud. The folder help has its help texts.
package main

import (
	"context"
	"embed"
	"io"
	"os"
	"time"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/hub/checks"
)

//go:embed help
var help embed.FS

func main() {
	ctx, stop := cli.UntilEnded()
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr, usualTiming()))
}

// run carries out the command line. Errors go to errs.
func run(ctx context.Context, args []string, out, errs io.Writer, t timing) int {
	c := &call{out: cli.Safe(out), err: cli.Safe(errs), timing: t, checkDir: checks.Dir}
	return c.program().Run(ctx, args, c.out, c.err)
}

// timing is shorter in tests.
type timing struct {
	// pace is the time between two polls or attempts.
	pace time.Duration
	// settle is how long a new pod has to stay Ready, unless its DaemonSet says so.
	settle time.Duration
}

// usualTiming is that of the program. Ten seconds are enough for a program that fails at
// its start to be restarted by kubelet, and so to be seen failing.
func usualTiming() timing { return timing{pace: time.Second, settle: 10 * time.Second} }
