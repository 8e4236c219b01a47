package freeport

import (
	"errors"
	"net"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// taken is Take, until the test ends.
func taken(t *testing.T) int {
	t.Helper()
	port, socket, err := take()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(socket) })
	return port
}

func listen(t *testing.T, port int) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestNoPortIsGivenTwice(t *testing.T) {
	seen := map[int]bool{}
	for range 200 {
		port := taken(t)
		if seen[port] || port < first || port > last {
			t.Fatalf("port %d, after %v", port, seen)
		}
		seen[port] = true
	}
}

// What reserve tells of a port is also what another process is told.
func TestAPortInUseIsPassedOver(t *testing.T) {
	port := taken(t)
	if _, err := reserve(port); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a port that is taken: %v", err)
	}
	l := listen(t, 0)
	defer l.Close()
	if _, err := reserve(l.Addr().(*net.TCPAddr).Port); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a port that is listened at: %v", err)
	}
}

// A process that is being started has all open sockets until it runs its program.
func TestAPortCanBeListenedAtWhileProcessesAreStarted(t *testing.T) {
	var starting sync.WaitGroup
	defer starting.Wait()
	for range 4 {
		starting.Go(func() {
			for range 20 {
				if err := exec.CommandContext(t.Context(), "true").Run(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 100 {
		listen(t, taken(t)).Close()
	}
}

func TestWhatComesBackFindsItsPortFree(t *testing.T) {
	port := taken(t)
	for range 3 {
		l := listen(t, port)
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		server.Close() // this end stays behind in TIME_WAIT
		client.Close()
		l.Close()
	}
}
