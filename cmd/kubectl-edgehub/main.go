// Command kubectl-edgehub shows and steers the rollouts of DaemonSets that opted
// into an update strategy of edgehub, and shows which nodes keep their pods while they
// are away. In a folder of PATH, it is `kubectl edgehub`. See help.go for its help texts.
//
// It reads the workload, its pods and the nodes, and judges them by the controller's own rules.
// So the report is right even while the controller does not run, and can show that.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // credentials of every kind that kubectl knows
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(int(run(ctx, filepath.Base(os.Args[0]), os.Args[1:], streams{out: os.Stdout, err: os.Stderr})))
}
