package proxy

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// selfWritten is a body that writes itself in pieces, and then ends with err.
type selfWritten struct {
	pieces []string
	err    error
	closed bool
}

func (*selfWritten) Read([]byte) (int, error) { return 0, errors.New("read instead of written") }

func (b *selfWritten) WriteTo(w io.Writer) (sent int64, err error) {
	for _, piece := range b.pieces {
		n, err := io.WriteString(w, piece)
		if sent += int64(n); err != nil {
			return sent, err
		}
	}
	return sent, b.err
}

func (b *selfWritten) Close() error {
	b.closed = true
	return nil
}

// RoundTrip answers with the body.
func (b *selfWritten) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: b, ContentLength: -1, Request: r,
	}, nil
}

func TestABodyThatWritesItself(t *testing.T) {
	large := strings.Repeat("x", 3*copyBufferSize)
	for name, test := range map[string]struct {
		body selfWritten
		want string // "" where the client must not take it for whole
	}{
		"a whole one":          {selfWritten{pieces: []string{large, "end"}}, large + "end"},
		"one that breaks off":  {selfWritten{pieces: []string{large}, err: errors.New("damaged")}, ""},
		"one that never began": {selfWritten{err: errors.New("damaged")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			log := slog.New(slog.DiscardHandler)
			front := httptest.NewServer(New(&test.body, log, NewMetrics(prometheus.NewRegistry())).Handler(Loopback))
			defer front.Close()
			front.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
			var body []byte
			res, err := front.Client().Get(front.URL + "/api/v1/pods")
			if err == nil {
				body, err = io.ReadAll(res.Body)
				res.Body.Close()
			}
			if (err == nil) != (test.want != "") || err == nil && string(body) != test.want {
				t.Errorf("%d bytes, %v; want %d bytes", len(body), err, len(test.want))
			}
			front.Close() // the handler has returned
			if !test.body.closed {
				t.Error("the body was not closed")
			}
		})
	}
}
