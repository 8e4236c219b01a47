// Command edgehubctl shows the owner of a node what its pods need, and has it done:
// pull the images of a new version ahead, and upgrade. It speaks to the hub on the
// node it runs on, through the API on loopback, and needs no kubeconfig and no
// cloud. Its help texts are in package helptext.
//
// Commands, help and completion are written by hand, on pflag. With cobra, this program and
// kubectl-edgehub had 12 lines less together and 0.25 MB more each, and cobra's completion
// for bash runs what stands in $() on the line.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as with nohup
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	defer stop()
	os.Exit(int(run(ctx, os.Args[1:], streams{out: os.Stdout, err: os.Stderr}, usualTiming())))
}
