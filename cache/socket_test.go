package cache

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/edgehub-io/edgehub/cache/view"
)

const (
	gone = "404"

	text, binaryMessage, closing, ping, pong = 0x81, 0x82, 0x88, 0x89, 0x8a
)

// frame is a frame of a WebSocket's server.
func frame(kind byte, payload string) string {
	header := []byte{kind}
	switch n := len(payload); {
	case n < 126:
		header = append(header, byte(n))
	case n < 1<<16:
		header = binary.BigEndian.AppendUint16(append(header, 126), uint16(n))
	default:
		header = binary.BigEndian.AppendUint64(append(header, 127), uint64(n))
	}
	return string(header) + payload
}

// events are messages of an apiserver, one event in each.
func events(all ...string) string {
	var out strings.Builder
	for _, e := range all {
		out.WriteString(frame(text, e))
	}
	return out.String()
}

// twoWay is the connection of an upgraded request.
type twoWay struct {
	io.ReadCloser
	sent strings.Builder // by the client
}

func (c *twoWay) Write(p []byte) (int, error) { return c.sent.Write(p) }
func (c *twoWay) CloseWrite() error           { c.sent.WriteString("|"); return nil }

// upgraded answers a watch with 101.
func (u *upstream) upgraded(r *http.Request) *http.Response {
	res := u.open(r)
	res.StatusCode, res.Body = http.StatusSwitchingProtocols, &twoWay{ReadCloser: res.Body}
	res.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
	return res
}

// socketRequest is a watch over WebSocket, as fabric8's client sends it.
func socketRequest(ctx context.Context, url string) *http.Request {
	r := newRequest(ctx, http.MethodGet, url)
	for name, value := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Origin": "http://apiserver",
	} {
		r.Header.Set(name, value)
	}
	return r
}

// openSocket opens a watch over WebSocket.
func openSocket(ctx context.Context, t *testing.T, u *upstream, c *Cache, url string) (client io.ReadWriteCloser, feed *io.PipeWriter) {
	t.Helper()
	res, err := c.RoundTrip(socketRequest(ctx, url))
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("watch over WebSocket: %v %v", res, err)
	}
	return res.Body.(io.ReadWriteCloser), <-u.feeds
}

// A watch over WebSocket from version 100 has shown this, and then the cloud goes away: a program that has been
// restarted gets nothing older than that.
func TestWhatAWatchOverWebSocketHasShown(t *testing.T) {
	newer, left, came := podEvent("MODIFIED", "a", "106"), podEvent("DELETED", "b", "107"), podEvent("ADDED", "c", "108")
	behind, doubt, never := view.ErrBehind.Error(), view.ErrDoubtful.Error(), view.ErrNeverRead.Error()
	for name, tt := range map[string]struct {
		url, accept string // if not the default
		sent        string
		list        string
		a, b, c     string
	}{
		"nothing":                        {list: "100: a=50 b=51", a: "a=50", b: "b=51", c: gone},
		"pings":                          {sent: frame(ping, "x") + frame(pong, ""), list: "100: a=50 b=51", a: "a=50", b: "b=51", c: gone},
		"a change":                       {sent: events(newer), list: "106: a=106 b=51", a: "a=106", b: "b=51", c: gone},
		"a deletion":                     {sent: events(left), list: "107: a=50", a: "a=50", b: gone, c: gone},
		"a new object":                   {sent: events(came), list: "108: a=50 b=51 c=108", a: "a=50", b: "b=51", c: "c=108"},
		"all of these":                   {sent: events(newer, left, came), list: "108: a=106 c=108", a: "a=106", b: gone, c: "c=108"},
		"a bookmark, and a ping between": {sent: events(newer) + frame(ping, "") + events(podBookmark("120", false)), list: "120: a=106 b=51", a: "a=106", b: "b=51", c: gone},
		"large events":                   {sent: events(strings.Repeat(" ", 200)+newer, strings.Repeat(" ", 1<<16)+came), list: "108: a=106 b=51 c=108", a: "a=106", b: "b=51", c: "c=108"},
		"events, and a part of one":      {sent: events(newer) + events(came)[:30], list: "106: a=106 b=51", a: "a=106", b: "b=51", c: gone},
		"an error":                       {sent: events(`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410}}`) + frame(closing, ""), list: "100: a=50 b=51", a: "a=50", b: "b=51", c: gone},
		"initial events":                 {url: urlWatch + "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", sent: events(podEvent("ADDED", "a", "106"), came, podBookmark("110", true)), list: "110: a=106 c=108", a: "a=106", b: gone, c: "c=108"},
		"events in protobuf":             {accept: protobuf, sent: frame(binaryMessage, "\x0a\x08MODIFIED"), list: behind, a: doubt, b: doubt, c: never},
		"events in binary messages":      {sent: frame(binaryMessage, newer), list: behind, a: doubt, b: doubt, c: never},
		"an event in two frames":         {sent: frame(0x01, newer[:40]) + frame(0x80, newer[40:]), list: behind, a: doubt, b: doubt, c: never},
		"compressed events":              {sent: frame(0xc1, newer), list: behind, a: doubt, b: doubt, c: never},
		"what is no event, after one":    {sent: events(newer, "hello"), list: behind, a: doubt, b: doubt, c: never},
		"what is no event, and then one": {sent: events("hello", came), list: behind, a: doubt, b: doubt, c: never},
		"events with a parameter that nobody knows": {url: urlWatch + "&resourceVersion=100&unknown=1", sent: events(came), list: "100: a=50 b=51", a: "a=50", b: "b=51", c: never},
	} {
		for _, user := range []string{"", "coredns.1"} {
			bubble(t, name+" "+user, func(t *testing.T) {
				u := newUpstream()
				u.on("watch", u.upgraded)
				u.shows("100", podJSON("a", "50"), podJSON("b", "51"))
				c := startCache(t, u)
				me, other := t.Context(), as(t.Context(), "kube-proxy.1")
				if user != "" {
					me = as(t.Context(), user)
				}
				for _, ctx := range []context.Context{me, other} {
					ask(ctx, t, c, http.MethodGet, urlPods)
				}
				ask(me, t, c, http.MethodGet, urlPodA) // a copy of its own

				if tt.url == "" {
					tt.url = urlWatch + "&resourceVersion=100"
				}
				ctx, cancel := context.WithCancel(me)
				defer cancel()
				if tt.accept != "" {
					ctx = context.WithValue(ctx, acceptKey{}, tt.accept)
				}
				client, feed := openSocket(ctx, t, u, c, tt.url)
				go func() {
					for i := range len(tt.sent) { // the worst way to cut it
						io.WriteString(feed, tt.sent[i:i+1])
					}
					feed.CloseWithError(io.ErrUnexpectedEOF)
				}()
				got, err := io.ReadAll(client)
				if string(got) != tt.sent || !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("the client got %q, %v; want %q", got, err, tt.sent)
				}
				cancel()
				synctest.Wait()
				u.goAway()
				for url, want := range map[string]string{urlPods: tt.list, urlPodA: tt.a, urlPodB: tt.b, "/api/v1/namespaces/ns/pods/c": tt.c} {
					if got := ask(me, t, c, http.MethodGet, url); strings.TrimSuffix(got, ": "+errRefused.Error()) != want {
						t.Errorf("offline, %s is %q, want %q", url, got, want)
					}
				}
				wayOut(me, t, c)
				if got, want := ask(other, t, c, http.MethodGet, urlPods), "100: a=50 b=51"; got != want {
					t.Errorf("offline, another user reads %q, want %q", got, want)
				}

				u.comeBack()
				u.shows("130", podJSON("d", "125"))
				ask(me, t, c, http.MethodGet, urlPods)
				u.goAway()
				for url, want := range map[string]string{urlPods: "130: d=125", urlPodA: gone, "/api/v1/namespaces/ns/pods/d": "d=125"} {
					if got := ask(me, t, c, http.MethodGet, url); got != want {
						t.Errorf("offline again, after a list, %s is %q, want %q", url, got, want)
					}
				}
			})
		}
	}
}

// wayOut fails the test if fabric8's client would not go on to an HTTP watch: it does if it is answered 200 or, by
// the proxy, 503.
func wayOut(ctx context.Context, t *testing.T, c *Cache) {
	t.Helper()
	res, err := c.RoundTrip(socketRequest(ctx, urlWatch+"&resourceVersion=130"))
	switch {
	case errors.Is(err, errRefused):
	case err != nil || res.StatusCode != http.StatusOK:
		t.Errorf("offline, a WebSocket is answered %v, %v", res, err)
	default:
		res.Body.Close()
	}
}

// A list is newer than what came before it, and older than what comes after it.
func TestAListDuringAWatchOverWebSocketThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50"))
		u.on("watch", u.upgraded)
		ctx := context.WithValue(t.Context(), acceptKey{}, protobuf)
		client, feed := openSocket(ctx, t, u, c, urlWatch+"&resourceVersion=100")
		shows := func() {
			go io.WriteString(feed, frame(binaryMessage, "x"))
			if _, err := client.Read(make([]byte, 10)); err != nil {
				t.Fatal(err)
			}
		}
		offline := func(when, want string) {
			t.Helper()
			u.goAway()
			expect(t, c, when, urlPods, want)
			u.comeBack()
		}
		shows()
		offline("after an event", view.ErrBehind.Error())
		u.shows("120", podJSON("a", "50"))
		get(t, c, urlPods)
		offline("after a list", "120: a=50")
		shows()
		offline("after another event", view.ErrBehind.Error())
	})
}

// A watch over WebSocket cannot begin below the version of its client. So the client lists, if its view is older, or lost.
func TestAWatchOverWebSocketThatWouldLeaveAGap(t *testing.T) {
	for name, tt := range map[string]struct {
		listed  string // before
		accept  string
		version string
		want    []int // codes of the answers
	}{
		"of a view that is older":        {"100", asJSON, "110", []int{http.StatusGone, http.StatusSwitchingProtocols}},
		"of a view that was never read":  {"", asJSON, "110", []int{http.StatusGone, http.StatusSwitchingProtocols}},
		"of a view that is as new":       {"110", asJSON, "110", []int{http.StatusSwitchingProtocols}},
		"that begins with what there is": {"", asJSON, "", []int{http.StatusSwitchingProtocols}},
		"that cannot be read anyway":     {"", protobuf, "110", []int{http.StatusSwitchingProtocols}},
	} {
		bubble(t, name, func(t *testing.T) {
			u := newUpstream()
			c := startCache(t, u)
			u.shows("120", podJSON("a", "115"))
			if tt.listed != "" {
				u.shows(tt.listed, podJSON("a", "50"))
				get(t, c, urlPods)
			}
			u.on("watch", u.upgraded)
			ctx, cancel := context.WithCancel(context.WithValue(t.Context(), acceptKey{}, tt.accept))
			for _, want := range tt.want {
				res, err := c.RoundTrip(socketRequest(ctx, urlWatch+"&resourceVersion="+tt.version))
				if err != nil || res.StatusCode != want {
					t.Fatalf("%v, %v; want %d", res, err, want)
				}
				defer res.Body.Close()
			}
			u.goAway()
			if res, err := c.RoundTrip(socketRequest(ctx, urlWatch+"&resourceVersion=130")); err == nil {
				if res.Body.Close(); res.StatusCode == http.StatusGone {
					t.Error("without the cloud a client is asked to list")
				}
			}
			cancel()
			synctest.Wait()
		})
	}
}

func TestBothDirectionsOfAWatchOverWebSocket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50"))
		var apiserver *twoWay
		u.on("watch", func(r *http.Request) *http.Response {
			res := u.upgraded(r)
			apiserver = res.Body.(*twoWay)
			return res
		})
		client, _ := openSocket(t.Context(), t, u, c, urlWatch+"&resourceVersion=100")
		if _, err := io.WriteString(client, "ping"); err != nil {
			t.Fatal(err)
		}
		if err := client.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got := apiserver.sent.String(); got != "ping|" {
			t.Errorf("the apiserver got %q", got)
		}
	})
}

func TestRefusedWebSocketsLeaveNoViews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50"))
		u.onText("watch", http.StatusNotFound, "{}")
		before := len(c.views.All())
		for i := range 100 {
			for range 2 { // the first gets 410
				res, err := c.RoundTrip(socketRequest(t.Context(), fmt.Sprintf("/api/v1/r%d?watch=true&resourceVersion=100", i)))
				if err != nil {
					t.Fatal(err)
				}
				if err := res.Body.Close(); err != nil {
					t.Error(err)
				}
			}
		}
		if n := len(c.views.All()); n != before {
			t.Errorf("%d views, want %d", n, before)
		}
	})
}
