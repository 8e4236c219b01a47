package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/cluster/link"
)

func TestUpStaysUntilDown(t *testing.T) {
	program, dir := buildProgram(t), t.TempDir()
	out, err := exec.CommandContext(t.Context(), program, "up", "--nodes=0", "--dir="+dir).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "look around:") || strings.ContainsRune(string(out), readyMark) {
		t.Fatalf("up: %v\n%q", err, out)
	}
	t.Cleanup(func() { _ = cluster.TakeDown(context.Background(), dir) })

	if out, err := exec.Command(program, "kubectl", "--dir="+dir, "get", "--raw", "/readyz").CombinedOutput(); err != nil || string(out) != "ok" {
		t.Errorf("kubectl: %v\n%s", err, out)
	}
	if out, err := exec.Command(program, "up", "--nodes=0", "--dir="+dir).CombinedOutput(); err == nil || !strings.Contains(string(out), "already") {
		t.Errorf("a second up: %v\n%s", err, out)
	}
	logs := filepath.Join(dir, "logs")
	if out, err := exec.Command(program, "down", "--dir="+dir).CombinedOutput(); err != nil || !strings.Contains(string(out), "kept in "+logs) {
		t.Errorf("down: %v\n%s", err, out)
	}
	if kept, err := os.ReadDir(logs); err != nil || len(kept) == 0 {
		t.Errorf("%d logs are kept in %s, %v", len(kept), logs, err)
	}
	expectNothing(t, dir)
	if out, err := exec.Command(program, "down", "--dir="+dir).CombinedOutput(); err != nil {
		t.Errorf("down where nothing runs: %v\n%s", err, out)
	}
}

func TestUpThatIsInterruptedTakesEverythingDown(t *testing.T) {
	program, dir := buildProgram(t), t.TempDir()
	for name, signal := range map[string]os.Signal{"Ctrl-C": os.Interrupt, "kill -9": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(program, "up", "--nodes=0", "--dir="+dir)
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if first, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
				t.Fatalf("first line %q: %v", first, err)
			}
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err == nil {
				t.Error("an interrupted up ended as if the cluster served")
			}
			eventuallyNothing(t, dir)
		})
	}
}

func TestTheLinkOfANode(t *testing.T) {
	target := httptest.NewServer(http.NotFoundHandler())
	defer target.Close()
	l, err := link.Listen("127.0.0.1:0", target.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	dir := t.TempDir()
	closed, err := serveLinks(t.Context(), dir, map[string]*link.Link{"node1": l})
	if err != nil {
		t.Fatal(err)
	}
	passes := func() bool {
		response, err := target.Client().Get("http://" + l.Addr())
		if err == nil {
			_ = response.Body.Close()
		}
		return err == nil
	}
	for _, mode := range []string{"down", "down", "up", "up"} {
		if err := run(t.Context(), []string{"link", "--dir=" + dir, "node1", mode}); err != nil {
			t.Fatal(err)
		}
		if got := passes(); got != (mode == "up") {
			t.Errorf("after link node1 %s, requests pass: %t", mode, got)
		}
	}
	for _, wrong := range [][]string{{"node2", "down"}, {"node1", "gone"}, {"node1"}} {
		if err := run(t.Context(), append([]string{"link", "--dir=" + dir}, wrong...)); err == nil {
			t.Errorf("link %q was accepted", wrong)
		}
	}
	closed()
	if err := run(t.Context(), []string{"link", "--dir=" + dir, "node1", "up"}); err == nil {
		t.Error("link was accepted where no cluster runs")
	}
}

func buildProgram(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "edgehub-cluster")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return program
}

func expectNothing(t *testing.T, dir string) {
	t.Helper()
	if left := processesOf(t, dir); left != "" {
		t.Errorf("left behind: %s", left)
	}
}

func eventuallyNothing(t *testing.T, dir string) {
	t.Helper()
	const patience = 2 * time.Minute
	for start := time.Now(); processesOf(t, dir) != ""; time.Sleep(20 * time.Millisecond) {
		if time.Since(start) > patience {
			t.Fatalf("after %s still there: %s", patience, processesOf(t, dir))
		}
	}
}

// processesOf are the processes with the folder in their arguments; those that
// have ended and are not reaped yet have no arguments.
func processesOf(t *testing.T, dir string) string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found strings.Builder
	for _, file := range all {
		arguments, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(arguments), dir) {
			fmt.Fprintf(&found, "%s %q\n", file, arguments)
		}
	}
	return found.String()
}
