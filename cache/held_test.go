package cache

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/cache/derived"
)

// reportStatus writes the status of a pod like a kubelet.
func reportStatus(t *testing.T, c *Cache, name, ip string) {
	t.Helper()
	r := newRequest(t.Context(), http.MethodPatch, "/api/v1/namespaces/ns/pods/"+name+"/status")
	body := fmt.Appendf(nil, `{"metadata":{"uid":"u-%s"},"status":{"podIP":%q}}`, name, ip)
	r.Header.Set("Content-Type", "application/strategic-merge-patch+json")
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	r.Body, _ = r.GetBody()
	res, err := c.RoundTrip(r)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("PATCH: %v, %v", res, err)
	}
}

// addresses is heard with the IPs of pods: "MODIFIED:a=50@10.0.0.1 BOOKMARK:=100@".
func (w *watcher) addresses(t *testing.T) string {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for d := json.NewDecoder(bytes.NewReader(w.body.Bytes())); ; {
		var e struct {
			Type   string `json:"type"`
			Object struct {
				offered
				Status struct {
					PodIP string `json:"podIP"`
				} `json:"status"`
			} `json:"object"`
		}
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			return strings.Join(all, " ")
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, e.Type+":"+e.Object.String()+"@"+e.Object.Status.PodIP)
	}
}

// A kubelet writes a status again when it sees that the cloud does not have it. What upstream sends comes after that.
func TestAHeldWatchRevertsStatusThatTheCloudDoesNotHave(t *testing.T) {
	const shown = "MODIFIED:a=50@10.0.0.1 BOOKMARK:=100@"
	for name, test := range map[string]struct {
		sent string // by the apiservers, with the return
		want string
	}{
		"the kubelet says nothing more":    {"", ""},
		"the kubelet says it again":        {podEvent("MODIFIED", "a", "150"), " MODIFIED:a=150@"},
		"the pod is gone":                  {podEvent("DELETED", "a", "150"), " DELETED:a=150@"},
		"something else changes meanwhile": {podEvent("MODIFIED", "b", "150"), " MODIFIED:b=150@"},
	} {
		bubble(t, name, func(t *testing.T) {
			u, c := startListed(t, "100", podJSON("a", "50"), podJSON("b", "51"))
			w := startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=100")
			u.goAway()
			u.on("watch", func(*http.Request) *http.Response { return nil })
			(<-u.feeds).CloseWithError(io.ErrUnexpectedEOF)
			synctest.Wait()
			reportStatus(t, c, "a", "10.0.0.1")
			synctest.Wait()
			if got := w.addresses(t); got != shown {
				t.Fatalf("offline the watch says %q, want %q", got, shown)
			}
			u.on("watch", u.open)
			u.comeBack()
			send(t, <-u.feeds, test.sent)
			time.Sleep(2 * time.Minute)
			if got, want := w.addresses(t), shown+" MODIFIED:a=50@ BOOKMARK:=100@"+test.want; got != want {
				t.Errorf("after the return it says %q, want %q", got, want)
			}
			if feeds := u.count("watch"); feeds > 3 || w.ended() {
				t.Errorf("the watch was opened %d times; it has ended: %v", feeds, w.ended())
			}
		})
	}
}

// kube-proxy ends when the addresses of its Node change: it sees those that kubelet has reported offline until kubelet has
// written them, or has had the time for it.
func TestOthersThanTheNodeKeepAStatusUntilItIsWritten(t *testing.T) {
	const shown = "MODIFIED:a=50@10.0.0.1 BOOKMARK:=100@"
	for name, test := range map[string]struct {
		sent string // by the apiservers, when kubelet has written
		want string
	}{
		"kubelet writes it again":       {podEvent("MODIFIED", "a", "150"), " MODIFIED:a=150@"},
		"kubelet says nothing any more": {"", " MODIFIED:a=50@ BOOKMARK:=100@"},
	} {
		bubble(t, name, func(t *testing.T) {
			u, c := startListed(t, "100", podJSON("a", "50"), podJSON("b", "51"))
			other := as(t.Context(), "kube-proxy")
			ask(other, t, c, http.MethodGet, urlPods)
			w := startWatch(other, t, c, urlWatch+"&resourceVersion=100")
			u.goAway()
			u.on("watch", func(*http.Request) *http.Response { return nil })
			(<-u.feeds).CloseWithError(io.ErrUnexpectedEOF)
			synctest.Wait()
			reportStatus(t, c, "a", "10.0.0.1")
			synctest.Wait()
			u.on("watch", u.open)
			u.comeBack()
			feed := <-u.feeds
			time.Sleep(10 * time.Second)
			if got := w.addresses(t); got != shown {
				t.Fatalf("ten seconds after the return the watch has said %q, want %q", got, shown)
			}
			send(t, feed, test.sent)
			time.Sleep(2 * time.Minute)
			if got := w.addresses(t); got != shown+test.want {
				t.Errorf("at the end it has said %q, want %q", got, shown+test.want)
			}
		})
	}
}

// A client that has listed during an outage, and watches after it, has seen status that the cloud
// may not have.
func TestAWatchOpenedAfterTheReturnRevertsStatus(t *testing.T) {
	for _, later := range []time.Duration{time.Second, time.Minute} {
		bubble(t, later.String(), func(t *testing.T) {
			u, c := startListed(t, "100", podJSON("a", "50"), podJSON("b", "51"))
			u.goAway()
			synctest.Wait()
			reportStatus(t, c, "a", "10.0.0.1")
			u.comeBack()
			time.Sleep(later)
			w := startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=100")
			synctest.Wait()
			if got, want := w.addresses(t), "MODIFIED:a=50@ BOOKMARK:=100@"; got != want {
				t.Errorf("the watch says %q, want %q", got, want)
			}
		})
	}
}

// A watch that no apiserver took back before the next loss has shown what is not there any more.
func TestAHeldWatchRevertsStatusOfTheOutageBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50"))
		w := startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=100")
		u.goAway()
		(<-u.feeds).CloseWithError(io.ErrUnexpectedEOF)
		synctest.Wait()
		reportStatus(t, c, "a", "10.0.0.1")
		synctest.Wait()
		u.on("watch", func(*http.Request) *http.Response { return respond(http.StatusServiceUnavailable, "{}") })
		u.comeBack()
		get(t, c, urlPods)
		time.Sleep(derived.SettleAfter + 10*time.Second)
		u.goAway()
		time.Sleep(20 * time.Second) // the next try to resume
		if got, want := w.addresses(t), "MODIFIED:a=50@10.0.0.1 BOOKMARK:=100@ MODIFIED:a=50@ BOOKMARK:=100@"; got != want {
			t.Errorf("the watch says %q, want %q", got, want)
		}
		if got := podIP(t, c, "a"); got != "" {
			t.Errorf("the list says %q", got)
		}
	})
}

// A status is shown wherever the pod was. It brings no pod into a list or watch whose selector asks for it, and takes
// none out.
func TestASelectorOfStatusMovesNoMembersOffline(t *testing.T) {
	const had, gets = "&fieldSelector=status.podIP%3D10.0.0.9", "&fieldSelector=status.podIP%3D10.0.0.1"
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50"), podJSON("b", "51"))
		get(t, c, urlPods+"?"+had)
		u.shows("100")
		get(t, c, urlPods+"?"+gets)
		u.goAway()
		synctest.Wait()
		watches := map[string]*watcher{}
		for _, selector := range []string{had, gets} {
			watches[selector] = startWatch(t.Context(), t, c, urlWatch+selector+"&resourceVersion=100")
		}
		reportStatus(t, c, "a", "10.0.0.1")
		synctest.Wait()
		for selector, want := range map[string]struct{ list, watch, initial string }{
			had:  {"100: a=50 b=51", "MODIFIED:a=50@10.0.0.1 BOOKMARK:=100@", "ADDED:a=50@10.0.0.1 ADDED:b=51@ BOOKMARK:=100@"},
			gets: {"100:", "", "BOOKMARK:=100@"},
		} {
			expect(t, c, selector, urlPods+"?"+selector, want.list)
			if got := watches[selector].addresses(t); got != want.watch {
				t.Errorf("%s: the held watch says %q, want %q", selector, got, want.watch)
			}
			w := startWatch(t.Context(), t, c, urlWatch+selector+listWatch)
			synctest.Wait()
			if got := w.addresses(t); got != want.initial {
				t.Errorf("%s: initial events are %q, want %q", selector, got, want.initial)
			}
		}
	})
}

func TestAHeldWatchShowsTheLastStatusOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50"), podJSON("b", "51"))
		u.goAway()
		synctest.Wait()
		reportStatus(t, c, "a", "10.0.0.1")
		reportStatus(t, c, "a", "10.0.0.2")
		reportStatus(t, c, "b", "10.0.0.3")
		w := startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=100")
		synctest.Wait()
		got := w.addresses(t)
		if !strings.Contains(got, "MODIFIED:a=50@10.0.0.2") || !strings.Contains(got, "MODIFIED:b=51@10.0.0.3") || strings.Contains(got, "10.0.0.1") || !strings.HasSuffix(got, "BOOKMARK:=100@") {
			t.Errorf("the watch says %q", got)
		}
		if got := get(t, c, urlPods); got != "100: a=50 b=51" {
			t.Errorf("the list is %q", got)
		}
	})
}

// podIP returns the IP of a pod in a list.
func podIP(t *testing.T, c *Cache, name string) string {
	t.Helper()
	res, err := c.RoundTrip(newRequest(t.Context(), http.MethodGet, urlPods))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var list corev1.PodList
	if err := json.NewDecoder(res.Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	for _, pod := range list.Items {
		if pod.Name == name {
			return pod.Status.PodIP
		}
	}
	return "no such pod"
}

// With the status a kubelet may write labels and annotations. GET and LIST show them in objects, and neither of them in metadata.
func TestMetadataIsShownAsItIsCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50"))
		u.goAway()
		if _, code := patchNode(t.Context(), t, c, urlPodA+"/status", strategic, `{"metadata":{"annotations":{"said":"by-kubelet"}}}`); code != http.StatusOK {
			t.Fatalf("PATCH: %d", code)
		}
		for accept, want := range map[string]bool{"application/json": true, "application/json;as=PartialObjectMetadata%s;v=v1;g=meta.k8s.io": false} {
			for url, list := range map[string]string{urlPods: "List", urlPodA: ""} {
				ctx := context.WithValue(t.Context(), acceptKey{}, strings.Replace(accept, "%s", list, 1))
				if got, err := readBody(ctx, t, c, url); err != nil || bytes.Contains(got, []byte("by-kubelet")) != want {
					t.Errorf("GET %s as %s: %v, %s", url, accept, err, got)
				}
			}
		}
	})
}

// #13: a kubelet does not send a status again while its watch shows it. So the hub has the only
// copy until it was taken back for a while, however often the cloud is lost and returns.
func TestABriefReturnOfTheCloudLosesNoStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50"), podJSON("b", "51"))
		w := startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=100")
		feed := <-u.feeds
		for range 5 {
			u.goAway()
			feed.CloseWithError(io.ErrUnexpectedEOF)
			synctest.Wait()
			if w.addresses(t) == "" {
				reportStatus(t, c, "a", "10.0.0.1")
			}
			synctest.Wait()
			if got := podIP(t, c, "a"); got != "10.0.0.1" {
				t.Errorf("offline the list says %q", got)
			}
			if got := w.addresses(t); !strings.HasSuffix(got, "MODIFIED:a=50@10.0.0.1 BOOKMARK:=100@") {
				t.Errorf("offline the watch says %q", got)
			}
			u.comeBack()
			feed = <-u.feeds
			time.Sleep(derived.SettleAfter - 5*time.Second)
			if got := w.addresses(t); !strings.HasSuffix(got, "MODIFIED:a=50@ BOOKMARK:=100@") {
				t.Errorf("online the watch says %q", got)
			}
		}
	})
}

// A loss, and a hub that starts, have the time begin anew for which a status is kept, also one that was reported when the hub
// had found the cloud already. Online, clients read what the cloud has, and when the time is over, offline, too.
func TestAStatusOutlivesBriefReturnsAndRestarts(t *testing.T) {
	const reported, almost, selected = "10.0.0.1", derived.SettleAfter - time.Second, urlPods + "?labelSelector=l%3Dx"
	synctest.Test(t, func(t *testing.T) {
		u, dir, other := newUpstream(), t.TempDir(), as(t.Context(), "coredns")
		u.shows("100", podJSON("a", "50", "x"))
		c, stop := runIn(t, dir, u)
		expectBoth := func(when, want string) {
			t.Helper()
			for url, who := range map[string]context.Context{urlPods: t.Context(), selected: other} {
				got, err := readBody(who, t, c, url)
				if err != nil || !bytes.Contains(got, []byte(`"name":"a"`)) || bytes.Contains(got, []byte("10.0.0.")) != (want != "") || !bytes.Contains(got, []byte(want)) {
					t.Errorf("%s: GET %s: %v, %s; want the address %q", when, url, err, got, want)
				}
			}
		}
		restart := func() {
			stop()
			c, stop = runIn(t, dir, u)
		}
		cut := func(when, want string) {
			t.Helper()
			u.goAway()
			synctest.Wait()
			expectBoth(when, want)
		}
		comeBack := func() {
			t.Helper()
			u.comeBack()
			synctest.Wait()
			expectBoth("online", "")
		}

		expectBoth("online", "")
		cut("before any report", "")
		reportStatus(t, c, "a", "10.0.0.9")
		comeBack()
		u.on("get", func(*http.Request) *http.Response { return nil })
		reportStatus(t, c, "a", reported)
		time.Sleep(5 * time.Second)
		cut("5 s after the return", reported)
		restart()
		expectBoth("after a restart without the cloud", reported)
		comeBack()
		time.Sleep(almost)
		cut("almost settled", reported)
		comeBack()
		time.Sleep(almost)
		restart()
		expectBoth("after a restart with the cloud", "")
		time.Sleep(almost)
		cut("almost settled after a restart", reported)
		comeBack()
		time.Sleep(derived.SettleAfter + time.Second)
		cut("settled", "")
		restart()
		expectBoth("settled, and after a restart", "")
	})
}

// The cloud was back for long enough that reports were dropped, or has a newer version.
func TestTheNextOutageShowsTheStatusOfTheCloud(t *testing.T) {
	for name, test := range map[string]struct {
		sent string // by the apiservers
		back time.Duration
		want string
	}{
		"the kubelet has written a newer status": {podEvent("MODIFIED", "a", "150"), 10 * time.Second, ""},
		"nothing was written":                    {"", derived.SettleAfter + 10*time.Second, ""},
		"nothing was written yet":                {"", derived.SettleAfter - 3*time.Second, "10.0.0.1"},
	} {
		bubble(t, name, func(t *testing.T) {
			u, c := startListed(t, "100", podJSON("a", "50"), podJSON("b", "51"))
			w := startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=100")
			u.goAway()
			(<-u.feeds).CloseWithError(io.ErrUnexpectedEOF)
			synctest.Wait()
			reportStatus(t, c, "a", "10.0.0.1")
			synctest.Wait()
			u.comeBack()
			feed := <-u.feeds
			send(t, feed, test.sent)
			time.Sleep(test.back)
			before := w.addresses(t)
			u.goAway()
			feed.CloseWithError(io.ErrUnexpectedEOF)
			synctest.Wait()
			if got, want := strings.Contains(strings.TrimPrefix(w.addresses(t), before), "10.0.0.1"), test.want != ""; got != want {
				t.Errorf("the watch says %q; before the loss %q", w.addresses(t), before)
			}
			if got := podIP(t, c, "a"); got != test.want {
				t.Errorf("the list says %q, want %q", got, test.want)
			}
		})
	}
}

// A client may have a version that a killed hub has lost, and so a newer pod than the hub. The
// hub must not show its status over the older pod.
func TestAStatusIsNotShownOverAnOlderPodThanTheClientHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50"))
		u.goAway()
		u.on("watch", func(*http.Request) *http.Response { return nil })
		ahead := startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=200")
		level := startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=100")
		synctest.Wait()
		reportStatus(t, c, "a", "10.0.0.1")
		synctest.Wait()
		if got, want := level.addresses(t), "MODIFIED:a=50@10.0.0.1 BOOKMARK:=100@"; got != want {
			t.Errorf("a watch from the cached version shows %q, want %q", got, want)
		}
		if got := ahead.addresses(t); got != "" {
			t.Errorf("a watch from a higher version shows %q, want nothing", got)
		}
	})
}

// Others see what the node reports only over the version of the pod that they have read.
func TestAStatusIsOnlyOverWhatOthersHaveRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50"))
		other := as(t.Context(), "coredns")
		ask(other, t, c, http.MethodGet, urlPods)
		u.onText("get", http.StatusOK, podJSON("a", "110"))
		get(t, c, urlPodA)
		u.goAway()
		reportStatus(t, c, "a", "10.0.0.1")
		for _, reader := range []struct {
			ctx  context.Context
			url  string
			want bool
		}{{other, urlPods, false}, {other, urlPodA, false}, {t.Context(), urlPodA, true}} {
			if got, err := readBody(reader.ctx, t, c, reader.url); err != nil || bytes.Contains(got, []byte("10.0.0.1")) != reader.want {
				t.Errorf("GET %s: %v, %s; want the status there: %v", reader.url, err, got, reader.want)
			}
		}
	})
}

// A watch that is held shows that it lives, to a client that takes bookmarks, and ends when its time is over.
func TestAHeldWatchEndsInTime(t *testing.T) {
	for url, bookmarks := range map[string]bool{urlWatch: true, urlPods + "?watch=true": false} {
		bubble(t, url, func(t *testing.T) {
			u, c := startListed(t, "100", podJSON("a", "50"))
			u.goAway()
			w := startWatch(t.Context(), t, c, url+"&resourceVersion=100&timeoutSeconds=90")
			time.Sleep(89 * time.Second)
			if w.ended() {
				t.Error("it has ended too early")
			}
			time.Sleep(2 * time.Second)
			got := w.heard(t)
			if !w.ended() || (got != "") != bookmarks || strings.TrimSpace(strings.ReplaceAll(got, "BOOKMARK:=100", "")) != "" {
				t.Errorf("it has ended: %v; the client heard %q, want bookmarks: %v", w.ended(), got, bookmarks)
			}
		})
	}
}
