package plugin

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// onTerminal runs kubectl edgehub on a terminal of 60 columns.
func onTerminal(t *testing.T, args ...string) *running {
	t.Helper()
	person, program := openTerminal(t)
	r := &running{t: t, out: &lockedBuffer{}, done: make(chan error, 1)}
	r.cmd = command(t.Context(), append([]string{"edgehub"}, args...)...)
	r.cmd.Stdout, r.cmd.Stderr = program, program
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = program.Close() // the program has its own
	go func() {
		_, _ = io.Copy(r.out, person) // ends with an error when the program does
		r.done <- r.cmd.Wait()
	}()
	return r
}

// openTerminal returns both ends of a pseudo-terminal.
func openTerminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { person.Close() })
	fd := int(person.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: 60, Row: 24}); err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return person, program
}

func TestATerminalHasABarThatMoves(t *testing.T) {
	f := newDaemonSet(t)
	runController(t)
	edgehub(t, "pause", "ds/web", "-n", f.Namespace).expect(t, 0, "paused")
	f.change("app:2")
	w := onTerminal(t, "status", "ds/web", "-n", f.Namespace, "-w")
	w.sees("[" + strings.Repeat("=", 51) + "]   0%")
	edgehub(t, "resume", "ds/web", "-n", f.Namespace).expect(t, 0, "resumed")
	w.sees("[" + strings.Repeat("#", 51) + "] 100%")
	w.ends(0)
	if !strings.Contains(w.out.String(), "A\r\x1b[J") {
		t.Errorf("the picture is not drawn in place:\n%q", w.out)
	}
	for line := range strings.Lines(w.out.String()) {
		if n := len(strings.TrimRight(line, "\r\n")); n > 60+len("\x1b[9A\r\x1b[J") {
			t.Errorf("%d columns on a terminal with 60: %q", n, line)
		}
	}
}
