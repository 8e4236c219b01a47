package access

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// A peer that sends large headers, and does not finish them, takes a third of the pool for these, and what it has is
// free when its connections are.
func TestLargeHeadersComeFromOnePool(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	budget := NewBudget(160).WithLargeHeaders()
	byAddress := func(conn net.Conn) (bool, string) {
		return false, conn.RemoteAddr().(*net.TCPAddr).IP.String()
	}
	l := newListener(tcp.(*net.TCPListener), budget, false, byAddress, prometheus.NewCounter(prometheus.CounterOpts{}), slog.New(slog.DiscardHandler))
	arrived, answer := make(chan struct{}), make(chan struct{})
	server := &http.Server{ConnState: ConnState, MaxHeaderBytes: largeMost - 4096, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-answer
		if r.URL.Path != "/exec" {
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		io.Copy(io.Discard, conn) // until the client closes it
		conn.Close()
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close(); <-done })

	dial := func(from string) net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		conn, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	send := func(conn net.Conn, path string, size int, end string) {
		fmt.Fprintf(conn, "GET %s?%s HTTP/1.1\r\nHost: hub%s", path, strings.Repeat("x", size), end)
	}
	awaitTaken := func(want int) {
		t.Helper()
		await(t, fmt.Sprintf("%d parts of the pool are taken, of which %d are", want, budget.large.Len()), func() bool { return budget.large.Len() == want })
	}
	const whole, parts = "\r\n\r\n", 14 // beyond the first 16 KiB
	const most = largePool / largePart / 3 / parts
	var flood []net.Conn
	for i := range most {
		flood = append(flood, dial("127.0.0.2"))
		send(flood[i], "/", (parts+1)*largePart-1024, "")
		awaitTaken((i + 1) * parts)
	}
	more := dial("127.0.0.2")
	send(more, "/", (parts+1)*largePart, "")
	if n, _ := readAll(t, more); n > 1024 {
		t.Errorf("one more of the same peer was answered with %d bytes", n)
	}
	awaitTaken(most * parts)

	exec, get := dial("127.0.0.3"), dial("127.0.0.3")
	send(get, "/", 20_000, whole)
	<-arrived
	awaitTaken(most*parts + 1) // until it is answered
	answer <- struct{}{}
	if res, err := http.ReadResponse(bufio.NewReader(get), nil); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("a larger header of another peer: %v %v", res, err)
	}
	awaitTaken(most * parts)
	send(exec, "/exec", 20_000, whole)
	<-arrived
	answer <- struct{}{}
	awaitTaken(most*parts + 1) // until it ends
	exec.Close()
	awaitTaken(most * parts)

	for _, conn := range flood {
		conn.Close()
	}
	awaitTaken(0)
	send(get, "/", largeMost+largePart, "")
	if res, err := http.ReadResponse(bufio.NewReader(get), nil); err != nil || res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a header that is too large: %v %v", res, err)
	}
	get.Close()
	awaitTaken(0)
}
