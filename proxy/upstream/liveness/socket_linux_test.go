package liveness

import (
	"io"
	"net"
	"testing"
	"time"
)

func TestBacklogReportsUnacknowledgedBytes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	backlog := tcpBacklog(client)
	before, _ := backlog()
	much := make([]byte, 64<<20) // more than the buffers of both kernels hold
	sent := 0
	for n, full := 0, false; n > 0 || !full; sent += n { // until the buffers are full
		_ = client.SetWriteDeadline(time.Now().Add(200 * time.Millisecond)) // a write ends in any case
		if n, err = client.Write(much); err == nil {
			t.Fatal("64 MiB were sent to a server that does not read")
		}
		_, full = backlog()
	}
	acked, waiting := backlog()
	if got := int(acked - before); !waiting || got <= 0 || got >= sent {
		t.Errorf("%d of %d bytes acknowledged, waiting: %v", got, sent, waiting)
	}
	go io.Copy(io.Discard, server)
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if acked, waiting = backlog(); !waiting && int(acked-before) == sent {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within 2 minutes: %d bytes are acknowledged, of %d", acked-before, sent)
		}
	}
}
