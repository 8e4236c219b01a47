package ota

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/coreclient"
	"github.com/edgehub-io/edgehub/ota/nodepods"
)

// watched is a cloud with the pod web-1 whose watches the test feeds, and the API in front of it, whose connections are
// in memory, for time that is simulated.
type watched struct {
	api      *API
	client   *http.Client
	offered  chan net.Conn
	events   chan string // one, of the watch that is open
	note     string      // of the pod in the list
	lists    int
	unfollow func() // ends what follows the pods
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func newWatched(t *testing.T, http2 bool, note string) *watched {
	t.Helper()
	w := &watched{offered: make(chan net.Conn), events: make(chan string, 1), note: note}
	config := &rest.Config{Host: "http://cloud.invalid", Transport: roundTrip(w.answer)}
	pods, err := NewPods(config)
	if err != nil {
		t.Fatal(err)
	}
	client, err := coreclient.New(config)
	if err != nil {
		t.Fatal(err)
	}
	followed, err := nodepods.New(client, "node-1")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var following sync.WaitGroup
	following.Go(func() { followed.Run(ctx, func([]*corev1.Pod) {}) })
	w.unfollow = func() { cancel(); following.Wait() }
	t.Cleanup(w.unfollow)
	offline := func() (bool, time.Time) { return false, heldUntil }
	if w.api, err = New(Options{NodeName: "node-1", Pods: pods, Followed: followed, Cloud: offline, InPlace: &placing{}}); err != nil {
		t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	server := &http.Server{Handler: w.api, Protocols: protocols}
	done := make(chan error, 1) // one result
	go func() { done <- server.Serve(w) }()
	transport := &http.Transport{Protocols: protocols, DisableCompression: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		w.offered <- there
		return here, nil
	}}
	w.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		server.Close()
		transport.CloseIdleConnections()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return w
}

// Accept, Close and Addr make it the listener of its server.
func (w *watched) Accept() (net.Conn, error) {
	if conn, ok := <-w.offered; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (w *watched) Close() error   { close(w.offered); return nil }
func (w *watched) Addr() net.Addr { return &net.TCPAddr{} }

// answer is the cloud's.
func (w *watched) answer(r *http.Request) (*http.Response, error) {
	res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r}
	if r.URL.Query().Get("watch") == "" {
		w.lists++
		res.Body = io.NopCloser(strings.NewReader(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[` + podAt("7", w.note) + `]}`))
		return res, nil
	}
	body, feed := io.Pipe()
	res.Body = body
	go func() {
		if r.URL.Query().Has("sendInitialEvents") {
			initial := `{"type":"ADDED","object":` + podAt("7", w.note) + `}` +
				`{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}}`
			if _, err := io.WriteString(feed, initial); err != nil {
				return
			}
		}
		for {
			select {
			case e := <-w.events:
				if _, err := io.WriteString(feed, e); err != nil {
					return
				}
			case <-r.Context().Done():
				feed.CloseWithError(r.Context().Err())
				return
			}
		}
	}()
	return res, nil
}

func podAt(version, note string) string {
	return fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-1","namespace":"default","uid":"1","resourceVersion":%q,"annotations":{"note":%q}}}`, version, note)
}

func modified(version, note string) string {
	return `{"type":"MODIFIED","object":` + podAt(version, note) + `}`
}

// open opens a watch.
func (w *watched) open(t *testing.T, query string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://hub"+api.Pods+"?watch=true"+query, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := w.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

// next reads an event as TYPE NAME@VERSION, or the error.
func next(lines *json.Decoder) string {
	var e struct {
		Type   string
		Object corev1.Pod
	}
	if err := lines.Decode(&e); err != nil {
		return err.Error()
	}
	if api.Condition(&e.Object, api.UpgradedOfflineCondition) == nil {
		return "what is to be said of its upgrade is missing"
	}
	return fmt.Sprintf("%s %s %s@%s", e.Type, e.Object.Kind, e.Object.Name, e.Object.ResourceVersion)
}

func expectNext(t *testing.T, lines *json.Decoder, want string) {
	t.Helper()
	if got := next(lines); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A watch may be quiet for as long as nothing changes, over HTTP/2, too, where a deadline that has passed ends a
// stream that is not being written to.
func TestAQuietWatchOfPodsGoesOn(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2: %v", http2), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWatched(t, http2, "")
				lines := json.NewDecoder(w.open(t, "").Body)
				expectNext(t, lines, "ADDED Pod web-1@7")
				time.Sleep(time.Hour)
				w.events <- modified("8", "")
				expectNext(t, lines, "MODIFIED Pod web-1@8")
			})
		})
	}
}

// Callers end a watch as they like to, or the hub does when it stops; they see a whole answer.
func TestAWatchOfPodsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t, false, "")
		began := time.Now()
		res := w.open(t, "&timeoutSeconds=90")
		if since := res.Header.Get(api.OfflineSinceHeader); since != "2026-05-06T09:08:09Z" {
			t.Errorf("offline since %q", since)
		}
		lines := json.NewDecoder(res.Body)
		expectNext(t, lines, "ADDED Pod web-1@7")
		expectNext(t, lines, "EOF")
		if after := time.Since(began); after != 90*time.Second {
			t.Errorf("it ended after %v", after)
		}
		none := w.open(t, "&labelSelector=app%3Dnone") // it has answered, though there are none
		lines = json.NewDecoder(w.open(t, "").Body)
		expectNext(t, lines, "ADDED Pod web-1@7")
		synctest.Wait() // until both wait for changes
		began = time.Now()
		w.api.Drain()
		expectNext(t, lines, "EOF")
		expectNext(t, json.NewDecoder(none.Body), "EOF")
		if after := time.Since(began); after != 0 {
			t.Errorf("they ended %v after the hub began to stop", after)
		}
		if res := w.open(t, ""); res.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("a watch that comes while the hub stops: %s", res.Status)
		}
	})
}

// The hub may have stopped to follow its pods before it says so.
func TestAWatchOfPodsThatNobodyFollowsIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t, false, "")
		expectNext(t, json.NewDecoder(w.open(t, "").Body), "ADDED Pod web-1@7")
		w.unfollow()
		res := w.open(t, "")
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(text), "the hub is stopping") {
			t.Errorf("%s: %s, %v", res.Status, text, err)
		}
	})
}

// The number of watches is bounded, and whoever does not read gives a place back soon.
func TestWatchesOfPodsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t, false, strings.Repeat("x", 64<<10)) // more than a client reads ahead
		for range maxWatches {
			w.open(t, "") // and reads nothing of it
		}
		if res := w.open(t, ""); res.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("one more: %s", res.Status)
		}
		time.Sleep(2 * lineTimeout)
		res := w.open(t, "")
		expectNext(t, json.NewDecoder(res.Body), "ADDED Pod web-1@7")
		if w.lists > 1 { // one may come before the hub knows the pods
			t.Errorf("all of these cost %d lists", w.lists)
		}
	})
}
