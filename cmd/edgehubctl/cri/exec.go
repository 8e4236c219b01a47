package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
)

// ExecOptions are a command to run, and what it reads and writes.
type ExecOptions struct {
	// Container is its name; empty: the default one, or the only one.
	Container string
	Command   []string
	// Stdin is nil for a command that reads nothing.
	Stdin io.Reader
	// Terminal, if not nil, is the terminal that the command gets: its keys go to the command, not
	// to this program, and the command's stderr comes on Stdout. Stdin is then the same terminal.
	Terminal       *os.File
	Stdout, Stderr io.Writer
}

// Exec runs a command in a container until it ends. Its error has the exit code of a command that fails, without words. When ctx ends first, the command may go on.
func (n *Node) Exec(ctx context.Context, pod types.NamespacedName, o ExecOptions) error {
	a, s, err := n.running(ctx, pod, o.Container)
	if err != nil {
		return err
	}
	answer, err := n.api.Exec(ctx, &runtimeapi.ExecRequest{
		ContainerId: s.Id, Cmd: o.Command, Tty: o.Terminal != nil, Stdin: o.Stdin != nil, Stdout: true, Stderr: o.Terminal == nil,
	})
	if err != nil {
		return asked("run a command in "+a.String(), err)
	}
	err = stream(ctx, answer.Url, o)
	switch code, isExit := errors.AsType[exec.CodeExitError](err); {
	case err == nil:
		return nil
	case isExit:
		return cli.Exit(code.Code)
	case ctx.Err() != nil:
		return cli.Errorf(cli.Undone, "interrupted: the command may go on in %s", a)
	}
	return fmt.Errorf("run a command in %s: %w", a, err)
}

// stream connects o to the command at address, which containerd has made up for this one call.
func stream(ctx context.Context, address string, o ExecOptions) error {
	at, err := url.Parse(address)
	if err != nil {
		return err
	}
	// The address is on this node, so no proxy of the environment learns of it.
	config := &rest.Config{Proxy: func(*http.Request) (*url.URL, error) { return nil, nil }} //nolint:nilnil // nil is: no proxy
	executor, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, at)
	if err != nil {
		return err
	}
	streams := remotecommand.StreamOptions{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr}
	if o.Terminal == nil {
		return executor.StreamWithContext(ctx, streams)
	}
	terminal, err := rawTerminal(o.Terminal)
	if err != nil {
		return err
	}
	defer terminal.restore()
	streams.Stderr, streams.Tty, streams.TerminalSizeQueue = nil, true, terminal
	return executor.StreamWithContext(ctx, streams)
}
