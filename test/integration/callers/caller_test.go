package callers

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// callerVariable, in the environment, makes the test's program a caller: it does what
// it reads orders from stdin, one a line, and answers each with a line.
const callerVariable = "EDGEHUB_TEST_CALLER"

// order is something that a caller is to do: get a URL, listen, or hold connections.
type order struct {
	Get    string // a URL
	Token  string // for Get
	Name   string // the server's, for Get; empty: that in the URL
	From   int    // the port to call from; 0: any
	Listen string // HOST:PORT, until the caller ends
	Hold   string // HOST:PORT, with TLS, until the caller ends
	Times  int    // for Hold
}

type outcome struct {
	Code int
	Body string
	Err  string
}

func callerMain() {
	orders, outcomes := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var o order
		if orders.Decode(&o) != nil {
			return
		}
		if o.Hold != "" {
			_ = outcomes.Encode(hold(o))
			continue
		}
		if o.Listen == "" {
			_ = outcomes.Encode(get(o))
			continue
		}
		l, err := net.Listen("tcp", o.Listen)
		if err != nil {
			_ = outcomes.Encode(outcome{Err: err.Error()})
			continue
		}
		defer l.Close()
		_ = outcomes.Encode(outcome{})
	}
}

var held []net.Conn //nolint:gochecknoglobals // of the process

// hold opens connections, and tells how many the other end did not close at once.
func hold(o order) (out outcome) {
	for range o.Times {
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: patience}, "tcp", o.Hold, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // as above
		if err != nil {
			out.Err = err.Error()
			continue
		}
		held = append(held, conn)
		out.Code++
	}
	return out
}

// get makes one request on a connection of its own.
func get(o order) outcome {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{Port: o.From}}
	client := http.Client{Transport: &http.Transport{
		DialContext: dialer.DialContext, DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: o.Name}, //nolint:gosec // who the caller is matters here, not the server
	}, Timeout: patience}
	req, err := http.NewRequest(http.MethodGet, o.Get, http.NoBody)
	if err != nil {
		return outcome{Err: err.Error()}
	}
	if o.Token != "" {
		req.Header.Set("Authorization", "Bearer "+o.Token)
	}
	res, err := client.Do(req)
	if err != nil {
		return outcome{Err: err.Error()}
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return outcome{Err: err.Error()}
	}
	return outcome{Code: res.StatusCode, Body: string(body)}
}

// caller is a process that makes requests.
type caller struct {
	t        *testing.T
	pid      int
	orders   *json.Encoder
	outcomes *json.Decoder
}

// newCaller starts one that ends with the test.
func newCaller(t *testing.T, attributes *syscall.SysProcAttr) *caller {
	t.Helper()
	cmd := exec.Command("/proc/self/exe") // the folder that it is in is not for other users
	cmd.Env = append(os.Environ(), callerVariable+"=1")
	cmd.SysProcAttr, cmd.Stderr = attributes, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("caller: %v", err)
		}
	})
	return &caller{t, cmd.Process.Pid, json.NewEncoder(in), json.NewDecoder(bufio.NewReader(out))}
}

func (c *caller) do(o order) outcome {
	c.t.Helper()
	var out outcome
	if err := c.orders.Encode(o); err != nil {
		c.t.Fatal(err)
	}
	if err := c.outcomes.Decode(&out); err != nil {
		c.t.Fatal(err)
	}
	return out
}
