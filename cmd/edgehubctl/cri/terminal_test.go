package cri

import (
	"fmt"
	"io"
	"os"
	"reflect"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// newTerminal returns a terminal, and what is behind its keys and its screen.
func newTerminal(t *testing.T) (terminal, behind *os.File) {
	t.Helper()
	behind, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(behind.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(behind.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // the keys end, and with them who waits for one
		_ = behind.Close()
		_ = terminal.Close()
	})
	return terminal, behind
}

func TestExecOnATerminal(t *testing.T) {
	f := newFake(t)
	f.addPod("uid", nil)
	f.start(t, "uid", "app", "")
	terminal, behind := newTerminal(t)
	resize := func(columns, rows uint16) {
		t.Helper()
		if err := unix.IoctlSetWinsize(int(behind.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows}); err != nil {
			t.Error(err)
		}
	}
	resize(100, 30)
	before, err := term.GetState(int(terminal.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	f.runOnTerminal = func(in io.Reader, out io.Writer, sizes <-chan remotecommand.TerminalSize) error {
		first := <-sizes
		resize(120, 40)
		if err := syscall.Kill(os.Getpid(), syscall.SIGWINCH); err != nil { // as the kernel does
			return err
		}
		second := <-sizes
		if _, err := behind.WriteString("a\x03"); err != nil { // Ctrl-C, and no line end
			return err
		}
		keys := make([]byte, 2)
		if _, err := io.ReadFull(in, keys); err != nil {
			return err
		}
		_, err := fmt.Fprintf(out, "%v %v %q\x1b[0m", first, second, keys)
		return err
	}
	out := &buffer{}
	if err := f.Node.Exec(t.Context(), web, ExecOptions{Command: []string{"sh"}, Stdin: terminal, Terminal: terminal, Stdout: out, Stderr: out}); err != nil {
		t.Fatal(err)
	}
	out.await(t, `{100 30} {120 40} "a\x03"`+"\x1b[0m")
	after, err := term.GetState(int(terminal.Fd()))
	if err != nil || !reflect.DeepEqual(before, after) {
		t.Errorf("the terminal was left as %v, %v, it was %v", after, err, before)
	}
}
