package rawclient

import (
	"io"
	"net/http"

	"github.com/edgehub-io/edgehub/cache/wire"
)

// WebSocket are the headers with which fabric8's Java client asks for a watch over WebSocket. Only HTTP/1.1 can upgrade.
func WebSocket(origin string) http.Header {
	return http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Origin": {origin},
		"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="},
	}
}

// Messages reads the text messages of a WebSocket, one after the other: those of a watch are an HTTP watch's body.
type Messages struct {
	io.ReadCloser
	frames wire.WebSocket
	text   []byte
}

func (m *Messages) Read(p []byte) (int, error) {
	for in := make([]byte, 4<<10); len(m.text) == 0; {
		n, err := m.ReadCloser.Read(in)
		if err := m.frames.Feed(in[:n], func(text []byte) error { m.text = append(m.text, text...); return nil }); err != nil {
			return 0, err
		}
		if err != nil && len(m.text) == 0 {
			return 0, err
		}
	}
	n := copy(p, m.text)
	m.text = m.text[n:]
	return n, nil
}
