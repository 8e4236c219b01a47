package freeport

import (
	"net"
	"strconv"
	"testing"
)

func TestNoPortIsGivenTwice(t *testing.T) {
	seen := map[int]bool{}
	for range 3 * blockSize {
		port, err := Take()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] || port < first || port > last {
			t.Fatalf("port %d, after %v", port, seen)
		}
		seen[port] = true
	}
	if len(claimed) < 3 {
		t.Errorf("%d blocks are claimed", len(claimed))
	}
}

// Each claim has a file of its own, as another process has: a lock that this one holds
// keeps both out.
func TestABlockIsClaimedOnce(t *testing.T) {
	have := map[string]bool{}
	for range 10 {
		if err := claim(); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range claimed {
		if have[file.Name()] {
			t.Errorf("%s is claimed twice", file.Name())
		}
		have[file.Name()] = true
	}
}

func TestAPortInUseIsPassedOver(t *testing.T) {
	port, err := Take()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	left = append([]int{port}, left...)
	if again, err := Take(); err != nil || again == port {
		t.Errorf("got %d, %v", again, err)
	}
}
