package cache

import (
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/cache/wire"
	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

// socket opens a watch over WebSocket as fabric8's client does. The client must speak HTTP/1.1.
func (c *client) socket(t *testing.T, path string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	maps.Copy(req.Header, rawclient.WebSocket(c.url))
	res, err := c.http.Do(req)
	if err != nil {
		t.Fatalf("WATCH %s over WebSocket: %v", path, err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

// readUpTo reads events up to a version.
func readUpTo(t *testing.T, res *http.Response, version string) {
	t.Helper()
	late := time.AfterFunc(patience, func() { res.Body.Close() })
	defer late.Stop()
	frames, err := wire.NewFrameReader(&rawclient.Messages{ReadCloser: res.Body}, wire.JSON)
	for err == nil {
		var f wire.Frame
		if f, err = frames.Next(); err == nil && string(f.Meta.ResourceVersion) == version {
			return
		}
	}
	t.Fatalf("the WebSocket ended before version %s: %v", version, err)
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
	watching := reader.socket(t, with(s.path, watchQuery)+"&resourceVersion="+before.version)
	if watching.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("a watch over WebSocket is answered %s", watching.Status)
	}
	version := s.change("changed", "again")
	s.remove("removed")
	last := s.create("added")
	readUpTo(t, watching, last.ResourceVersion)
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
		if res := reader.socket(t, with(s.path, watchQuery)+"&resourceVersion="+after.version); res.StatusCode != http.StatusOK {
			t.Errorf("%s, a watch over WebSocket is answered %s; at 200, fabric8 watches over HTTP", when, res.Status)
		}
	}
	read("offline")
	h.awaitDisk()
	h.kill()
	h.start()
	read("after a crash of the hub")
}
