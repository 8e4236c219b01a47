package ota

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// talk sends raw to address, and returns the answer's code and body.
func talk(t *testing.T, address, raw string) (int, string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.WriteString(conn, raw) // the other side may have had enough
	}()
	defer func() { conn.Close(); <-sent }()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(body)
}

func TestBodiesAreSmall(t *testing.T) {
	o := unusedPods(t)
	reached := 0
	o.Ready = func() error { reached++; return nil }
	url := serve(t, o)
	chunked := func(size int) string {
		const chunk = 8 << 10
		var b strings.Builder
		for ; size > 0; size -= chunk {
			n := min(size, chunk)
			fmt.Fprintf(&b, "%x\r\n%s\r\n", n, strings.Repeat("x", n))
		}
		return "Transfer-Encoding: chunked\r\n\r\n" + b.String() + "0\r\n\r\n"
	}
	plain := func(size int) string {
		return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size))
	}
	tests := map[string]struct {
		rest string
		code int
	}{
		"no body":                            {"\r\n", 200},
		"the largest body":                   {plain(maxBody), 200},
		"a body of one byte too many":        {plain(maxBody + 1), 413},
		"a Content-Length that is too large": {"Content-Length: 1000000000000\r\n\r\n", 413},
		"a body with Expect: 100-continue":   {"Expect: 100-continue\r\nContent-Length: 1000000\r\n\r\n", 413},
		"the largest body in chunks":         {chunked(maxBody), 200},
		"chunks of one byte too many":        {chunked(maxBody + 1), 413},
		"chunks without end":                 {chunked(40 * maxBody), 413},
		"invalid chunks":                     {"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			reached = 0
			code, body := talk(t, strings.TrimPrefix(url, "http://"), "GET /v1/readyz HTTP/1.1\r\nHost: 127.0.0.1\r\n"+tt.rest)
			if code != tt.code || (reached > 0) != (tt.code == 200) {
				t.Errorf("got %d %q, handler reached %d times, want %d", code, body, reached, tt.code)
			}
			if tt.code == 413 && !strings.HasSuffix(body, "no request needs one here\n") {
				t.Errorf("got %q, want to be told what to do", body)
			}
		})
	}
}
