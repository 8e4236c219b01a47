package hub

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// http2Client speaks HTTP/2 to the TLS port frame by frame, in ways that no library would.
type http2Client struct {
	*http2.Framer
	conn    *tls.Conn
	headers bytes.Buffer
	encoder *hpack.Encoder
	next    uint32 // stream
}

func dialHTTP2(t *testing.T, address string) (c *http2Client, settings map[http2.SettingID]uint32) {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
	if c, err = newHTTP2Client(conn); err != nil {
		t.Fatal(err)
	}
	frame, err := c.ReadFrame()
	if err != nil {
		t.Fatal(err)
	}
	settings = map[http2.SettingID]uint32{}
	_ = frame.(*http2.SettingsFrame).ForeachSetting(func(s http2.Setting) error {
		settings[s.ID] = s.Val
		return nil
	})
	return c, settings
}

// newHTTP2Client begins HTTP/2 on conn.
func newHTTP2Client(conn *tls.Conn) (*http2Client, error) {
	c := &http2Client{Framer: http2.NewFramer(conn, conn), conn: conn, next: 1}
	c.encoder = hpack.NewEncoder(&c.headers)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return nil, err
	}
	err := c.WriteSettings()
	return c, err
}

// open begins a request with a token, and returns its stream.
func (c *http2Client) open(path string, more ...hpack.HeaderField) (uint32, error) {
	c.headers.Reset()
	for _, f := range append([]hpack.HeaderField{
		{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "hub"},
		{Name: ":path", Value: path}, {Name: "authorization", Value: "Bearer mine"},
	}, more...) {
		_ = c.encoder.WriteField(f) // to a buffer
	}
	stream := c.next
	c.next += 2
	return stream, c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: c.headers.Bytes(), EndStream: true, EndHeaders: true})
}

// The limits of net/http apply in the hub: nothing switches them off. That it keeps to what it announces is net/http's
// own matter.
func TestHTTP2IsBounded(t *testing.T) {
	var running, most atomic.Int64
	n := newNode(t, func(_ http.ResponseWriter, r *http.Request) {
		now := running.Add(1)
		defer running.Add(-1)
		for before := most.Load(); now > before && !most.CompareAndSwap(before, now); before = most.Load() {
		}
		if strings.Contains(r.URL.Path, "slow") {
			<-r.Context().Done()
		}
	})
	n.start(t)
	address := n.config.SecureAddress
	healthy := func(t *testing.T) {
		t.Helper()
		if code, body := fetch(t, http.DefaultClient, "http://"+n.config.ServeAddress+"/v1/healthz"); code != 200 {
			t.Errorf("healthz: %d %q", code, body)
		}
		if code, _ := fetch(t, http.DefaultClient, "http://"+n.config.ProxyAddress+"/version"); code != 200 {
			t.Errorf("10261: %d", code)
		}
	}

	t.Run("streams and headers", func(t *testing.T) {
		c, settings := dialHTTP2(t, address)
		if got := settings[http2.SettingMaxConcurrentStreams]; got == 0 || got > 250 {
			t.Errorf("%d streams at a time", got)
		}
		if got := settings[http2.SettingMaxHeaderListSize]; got == 0 || got > 16<<10 {
			t.Errorf("headers of %d bytes", got)
		}
		if got := settings[http2.SettingMaxFrameSize]; got != 16<<10 { // the least that there may be
			t.Errorf("frames of %d bytes, each of which the hub makes room for when its first bytes come", got)
		}
		stream, err := c.open("/api?" + strings.Repeat("a", 17<<10+headerSlack))
		if err != nil {
			t.Fatal(err)
		}
		if answer := c.answer(t, stream); answer != "COMPRESSION_ERROR" { // net/http's own, not package proxy's 431
			t.Errorf("a larger header: %s", answer)
		}
	})
	t.Run("rapid reset", func(t *testing.T) {
		most.Store(0)
		c, _ := dialHTTP2(t, address)
		for range 2_000 {
			stream, err := c.open("/api/slow")
			if err == nil {
				err = c.WriteRSTStream(stream, http2.ErrCodeCancel)
			}
			if err != nil {
				break // the hub has had enough
			}
		}
		healthy(t)
		if got := most.Load(); got > 2*250 {
			t.Errorf("%d requests at a time reached the apiserver", got)
		}
	})
	t.Run("pings that nobody reads the answers of", func(t *testing.T) {
		c, _ := dialHTTP2(t, address)
		var err error
		for i := 0; err == nil && i < 2_000_000; i++ {
			err = c.WritePing(false, [8]byte{})
		}
		if err == nil || errors.Is(err, io.EOF) {
			t.Errorf("the hub took them all: %v", err)
		}
		healthy(t)
	})
	t.Run("HTTP/1.1's headers that HTTP/2 has not", func(t *testing.T) {
		for _, f := range []hpack.HeaderField{
			{Name: "connection", Value: "authorization"}, {Name: "transfer-encoding", Value: "chunked"}, {Name: "Authorization", Value: "x"},
			{Name: "x-a", Value: "b\r\nx-c: d"},
		} {
			c, _ := dialHTTP2(t, address)
			stream, err := c.open("/api", f)
			if err != nil {
				t.Fatal(err)
			}
			if answer := c.answer(t, stream); answer == "200" {
				t.Errorf("%s: %q: answered %s", f.Name, f.Value, answer)
			}
		}
		healthy(t)
	})
}

// answer returns the status of the response on a stream, or how the stream ended.
func (c *http2Client) answer(t *testing.T, stream uint32) string {
	t.Helper()
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		frame, err := c.ReadFrame()
		if err != nil {
			return err.Error()
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			return f.PseudoValue("status")
		case *http2.RSTStreamFrame:
			return f.ErrCode.String()
		case *http2.GoAwayFrame:
			return f.ErrCode.String()
		}
	}
}

// Its connections are asked to end when the hub stops, and those that are idle do.
func TestStopEndsConnectionsOfHTTP2(t *testing.T) {
	n := newNode(t, echoToken)
	n.config.ShutdownGrace = time.Hour // longer than any test may take
	_, stop := n.start(t)
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true} //nolint:gosec // the server is the test's
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+n.config.SecureAddress+"/version", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer mine")
	res, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK || res.ProtoMajor != 2 {
		t.Errorf("%d by %s", res.StatusCode, res.Proto)
	}
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
}
