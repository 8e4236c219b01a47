package cache

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/cache/wire"
)

// socket is an open watch over WebSocket.
type socket struct {
	conn   io.ReadCloser
	frames wire.WebSocket
}

// socket opens a watch as fabric8's client does. The client must speak HTTP/1.1.
func (c *client) socket(t *testing.T, path string) (*socket, *http.Response) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Authorization": "Bearer " + c.token, "Origin": c.url, "Connection": "Upgrade", "Upgrade": "websocket",
		"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
	} {
		req.Header.Set(name, value)
	}
	res, err := c.http.Do(req)
	if err != nil {
		t.Fatalf("WATCH %s over WebSocket: %v", path, err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return &socket{conn: res.Body}, res
}

// until reads until an event contains a text.
func (s *socket) until(t *testing.T, text string) {
	t.Helper()
	late := time.AfterFunc(patience, func() { s.conn.Close() })
	defer late.Stop()
	for found, p := false, make([]byte, 1<<10); !found; {
		n, err := s.conn.Read(p)
		if err != nil {
			t.Fatalf("the WebSocket ended before an event had %q: %v", text, err)
		}
		err = s.frames.Feed(p[:n], func(event []byte) error {
			found = found || strings.Contains(string(event), text)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// #52.3: a program that watched over WebSocket, and was restarted without the cloud, reads nothing older than what it had seen.
func TestAWatchOverWebSocketIsNotForgotten(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	for _, name := range []string{"changed", "kept", "removed"} {
		s.create(name)
	}
	reader := h.secureOver(nil, false)
	reader.token = s.account("alice")
	before := reader.servedList(t, s.path, asJSON)
	watching, res := reader.socket(t, with(s.path, watchQuery)+"&resourceVersion="+before.version)
	if res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("the watch over WebSocket is answered %s", res.Status)
	}
	version := s.change("changed", "again")
	s.remove("removed")
	last := s.create("added")
	watching.until(t, `"resourceVersion":"`+last.ResourceVersion+`"`)
	h.cut()

	read := func(when string) {
		t.Helper()
		after := reader.servedList(t, s.path, asJSON)
		if want := []string{"added", "changed", "kept", "kube-root-ca.crt"}; !slices.Equal(after.names(), want) || after.items[s.name+"/changed"] != version {
			t.Errorf("%s, the list has %v, changed at %s; want %v, changed at %s", when, after.names(), after.items[s.name+"/changed"], want, version)
		}
		if number(t, after.version) < number(t, last.ResourceVersion) {
			t.Errorf("%s, the list is at %s, and %s was seen", when, after.version, last.ResourceVersion)
		}
		reader.refused(t, request{path: s.one("removed"), accept: asJSON}, http.StatusNotFound)
		if _, res := reader.socket(t, with(s.path, watchQuery)+"&resourceVersion="+after.version); res.StatusCode != http.StatusOK {
			t.Errorf("%s, a watch over WebSocket is answered %s; at 200, fabric8 watches over HTTP", when, res.Status)
		}
	}
	read("offline")
	h.awaitDisk()
	h.kill()
	h.start()
	read("after a crash of the hub")
}
