// Command kubectl-edgehub shows and steers the rollouts of DaemonSets that opted
// into an update strategy of edgehub, and shows which nodes keep their pods while they
// are away. In a folder of PATH, it is `kubectl edgehub`. The folder help has its help texts.
//
// Of a rollout it repeats what the controller says in an annotation of the workload, and adds what pods and nodes report. It warns
// if the controller does not run.
package main

import (
	"context"
	"embed"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // credentials of every kind that kubectl knows
	"k8s.io/klog/v2"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
)

//go:embed help
var help embed.FS

func main() {
	ctx, stop := cli.UntilEnded()
	defer stop()
	os.Exit(run(ctx, filepath.Base(os.Args[0]), os.Args[1:], os.Stdout, os.Stderr))
}

// kubectlCompleter is the executable that kubectl asks what may follow `kubectl edgehub`.
const kubectlCompleter = "kubectl_complete-edgehub"

// run carries out the command line. Errors go to errs. program is the name of the executable.
func run(ctx context.Context, program string, args []string, out, errs io.Writer) int {
	// client-go's log lines would destroy the picture; what matters is returned as errors.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	c := &call{out: cli.Safe(out), err: cli.Safe(errs)}
	p := c.program()
	if program == kubectlCompleter {
		cli.PrintForKubectl(c.out, p.Complete(ctx, args))
		return cli.Done
	}
	return p.Run(ctx, args, c.out, c.err)
}
