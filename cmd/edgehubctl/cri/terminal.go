package cri

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
	"k8s.io/client-go/tools/remotecommand"
)

// terminal is a terminal in raw mode, and a queue of its sizes.
type terminal struct {
	fd      int
	before  *term.State
	changes chan os.Signal
	done    chan struct{}
}

// rawTerminal has file pass on each key as it comes, Ctrl-C too, until restore.
func rawTerminal(file *os.File) (*terminal, error) {
	// One place: sizes that nobody has asked for yet are one change.
	t := &terminal{fd: int(file.Fd()), changes: make(chan os.Signal, 1), done: make(chan struct{})}
	var err error
	if t.before, err = term.MakeRaw(t.fd); err != nil {
		return nil, fmt.Errorf("set up the terminal: %w", err)
	}
	t.changes <- syscall.SIGWINCH // the size at the beginning
	signal.Notify(t.changes, syscall.SIGWINCH)
	return t, nil
}

// restore ends raw mode and the queue.
func (t *terminal) restore() {
	signal.Stop(t.changes)
	close(t.done)
	_ = term.Restore(t.fd, t.before) // the terminal may be gone
}

// Next implements remotecommand.TerminalSizeQueue: it blocks until the size has changed, and
// returns nil in the end.
func (t *terminal) Next() *remotecommand.TerminalSize {
	select {
	case <-t.done:
	case <-t.changes:
		if width, height, err := term.GetSize(t.fd); err == nil {
			return &remotecommand.TerminalSize{Width: uint16(width), Height: uint16(height)} //nolint:gosec // columns and rows
		}
	}
	return nil
}
