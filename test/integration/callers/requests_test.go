package callers

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// requests are under way on connections of their own.
type requests []*net.TCPConn

func (r *requests) send(o order) outcome {
	var out outcome
	for range o.Conns {
		conn, err := net.Dial("tcp", o.At)
		if err != nil {
			out.Err = err.Error()
			break
		}
		*r = append(*r, conn.(*net.TCPConn))
		out.Ports = append(out.Ports, conn.LocalAddr().(*net.TCPAddr).Port)
		if _, err := io.WriteString(conn, o.Send); err != nil {
			out.Err = err.Error()
		}
	}
	if o.Reset {
		r.reset()
	}
	return out
}

func (r *requests) answers() outcome {
	out := outcome{Codes: map[int]int{}}
	for _, conn := range *r {
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			out.Err = err.Error()
			continue
		}
		res.Body.Close()
		out.Codes[res.StatusCode]++
	}
	r.reset()
	return out
}

// reset frees the ports at once.
func (r *requests) reset() {
	for _, conn := range *r {
		_ = conn.SetLinger(0)
		conn.Close()
	}
	*r = nil
}

// flood keeps many connections under way at a time, each with a request that is
// refused.
func flood(at string) {
	const together = 32
	for range together {
		go func() {
			for {
				conn, err := floodDialer.DialContext(context.Background(), "tcp", at)
				if err != nil {
					continue
				}
				_, _ = io.WriteString(conn, "GET /flood HTTP/1.1\r\nHost: localhost\r\n\r\n")
				_ = conn.(*net.TCPConn).SetLinger(0)
				conn.Close()
			}
		}()
	}
}

// floodDialer uses an address of its own, so that it takes up no ports of 127.0.0.1.
var floodDialer = net.Dialer{
	LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)},
	Control: func(_, _ string, c syscall.RawConn) (err error) {
		if controlErr := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
		}); controlErr != nil {
			return controlErr
		}
		return err
	},
}
