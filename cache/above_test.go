package cache

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// versionsOf returns the versions at which watches were opened.
func (u *upstream) versionsOf() (all []string) {
	for _, one := range u.all("watch") {
		all = append(all, one.query.Get("resourceVersion"))
	}
	return all
}

// A hub that was killed lacks the last seconds. Its clients go on from above its views, and get what is above their own
// version; the views get everything.
func TestAWatchThatStartsAboveItsView(t *testing.T) {
	for name, tt := range map[string]struct {
		sent, heard, offline string
	}{
		"events below, and above": {
			podEvent("ADDED", "b", "105") + podEvent("DELETED", "a", "108") + podEvent("MODIFIED", "b", "115"),
			"MODIFIED:b=115", "115: b=115",
		},
		"a bookmark below":                 {podEvent("ADDED", "b", "105") + podBookmark("107", false), "", "107: a=50 b=105"},
		"a bookmark just there, and above": {podBookmark("110", false) + podBookmark("112", false), "BOOKMARK:=110 BOOKMARK:=112", "112: a=50"},
		"nothing yet":                      {"", "", "100: a=50"},
		"an error": {
			podEvent("ADDED", "b", "105") + `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410}}` + "\n",
			"ERROR:410", "105: a=50 b=105",
		},
	} {
		bubble(t, name, func(t *testing.T) {
			u, c := startListed(t, "100", podJSON("a", "50"))
			u.onText("check", http.StatusOK, podsJSON("120"))
			w := startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=110")
			<-u.feeds
			feed := <-u.feeds
			if got, want := u.versionsOf(), []string{"110", "100"}; !slices.Equal(got, want) {
				t.Errorf("it was opened at %q, want %q", got, want)
			}
			send(t, feed, tt.sent)
			synctest.Wait()
			if got := w.heard(t); got != tt.heard {
				t.Errorf("the client heard %q, want %q", got, tt.heard)
			}
			u.goAway()
			expect(t, c, "offline", urlPods, tt.offline)
			if n := u.count("list"); n != 1 {
				t.Errorf("%d lists, want that of the client", n)
			}
		})
	}
}

func TestAViewWhoseVersionIsForgottenIsListedByItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50"))
		u.on("watch", func(r *http.Request) *http.Response {
			if r.URL.Query().Get("resourceVersion") == "100" {
				return respond(http.StatusGone, "{}")
			}
			return u.open(r)
		})
		u.shows("120", podJSON("a", "115"))
		startReflector(t, c, "110")
		time.Sleep(time.Minute)
		if n := u.count("list"); n != 2 {
			t.Errorf("%d lists, want two of the client", n)
		}
		u.goAway()
		expect(t, c, "offline", urlPods, "120: a=115")
	})
}

// A watch goes on while its view is lost, and an apiserver that lags behind has a list below it. The list is answered
// offline with all that the watch has shown.
func TestAListBelowAWatchThatHasGoneOn(t *testing.T) {
	for name, tt := range map[string]struct {
		then    func(t *testing.T, u *upstream)
		offline string
	}{
		"of which all is sent again": {func(t *testing.T, u *upstream) {
			send(t, <-u.feeds, podEvent("ADDED", "b", "115"), podEvent("MODIFIED", "a", "120"), podEvent("MODIFIED", "b", "130"))
		}, "130: a=120 b=130"},
		"after which nothing more comes": {func(t *testing.T, u *upstream) {
			send(t, <-u.feeds, podEvent("ADDED", "b", "115"), podEvent("MODIFIED", "a", "120"))
		}, "120: a=120 b=115"},
	} {
		bubble(t, name, func(t *testing.T) {
			u := newUpstream()
			c := startCache(t, u)
			u.shows("110", podJSON("a", "50"))
			asksOnce(t, u, c, urlWatch+"&resourceVersion=112")
			w := startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=112")
			feed := <-u.feeds
			send(t, feed, podEvent("ADDED", "b", "115"), podEvent("MODIFIED", "a", "120"))
			synctest.Wait()
			u.onText("check", http.StatusOK, podsJSON("120"))
			expect(t, c, "online", urlPods+anyVersion, "110: a=50")
			synctest.Wait()
			tt.then(t, u)
			synctest.Wait()
			if got := u.versionsOf(); got[len(got)-1] != "110" {
				t.Errorf("the watch was opened at %q, want the list's version at last", got)
			}
			u.goAway()
			expect(t, c, "offline", urlPods, tt.offline)
			if got := w.heardEvents(t); slices.Compact(slices.Clone(got)) == nil || len(slices.Compact(slices.Sorted(slices.Values(got)))) != len(got) {
				t.Errorf("the client heard something twice: %q", got)
			}
		})
	}
}

// An event that cannot be read makes the view unknown, until a list is committed; then the watch goes on from there.
func TestAListBelowAnEventThatCouldNotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50"))
		startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=100")
		feed := <-u.feeds
		send(t, feed, podEvent("RENAMED", "a", "105"))
		synctest.Wait()
		u.shows("110", podJSON("a", "105"))
		get(t, c, urlPods)
		synctest.Wait()
		feed = <-u.feeds
		send(t, feed, podEvent("ADDED", "b", "115"))
		synctest.Wait()
		u.goAway()
		feed.CloseWithError(io.ErrUnexpectedEOF)
		expect(t, c, "offline", urlPods, "115: a=105 b=115")
	})
}

// What its client lists is not what the watch feeds. It is asked to list once, and then its watch goes on.
func TestAWatchGoesOnThoughTheVersionOfItsViewIsForgotten(t *testing.T) {
	const gone = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410}}` + "\n"
	asPage := strings.Replace(podsJSON("5000", podJSON("a", "50")), `"resourceVersion":"5000"`, `"resourceVersion":"5000","continue":"x"`, 1)
	const from, initial = urlWatch + "&resourceVersion=5000", "ADDED:a=50 BOOKMARK:=5000"
	for name, tt := range map[string]struct {
		code       int
		list, url  string
		begin      []string // what an apiserver sends first
		once, then string   // what the client hears
	}{
		"it only watches":              {http.StatusOK, "", from, nil, "ERROR:410", "MODIFIED:a=5001"},
		"refused with a status":        {http.StatusGone, "", from, nil, "ERROR:410", "MODIFIED:a=5001"},
		"it reads only the first page": {http.StatusOK, urlPods + "?limit=2", from, nil, "ERROR:410", "MODIFIED:a=5001"},
		"with initial events, of which one is unreadable": {
			http.StatusOK, "", urlInitial, []string{podEvent("RENAMED", "b", "4000"), podEvent("ADDED", "a", "50"), podBookmark("5000", true)},
			"RENAMED:b=4000 " + initial + " ERROR:410", "RENAMED:b=4000 " + initial + " MODIFIED:a=5001",
		},
	} {
		bubble(t, name, func(t *testing.T) {
			u, c := startListed(t, "100", podJSON("a", "50"))
			u.onText("check", http.StatusOK, podsJSON("5000"))
			u.onText("list", http.StatusOK, asPage)
			u.on("watch", func(r *http.Request) *http.Response {
				if r.URL.Query().Get("resourceVersion") == "100" {
					return respond(tt.code, gone)
				}
				return u.open(r)
			})
			for i, want := range []string{tt.once, tt.then, tt.then} {
				if tt.list != "" {
					get(t, c, tt.list)
				}
				w := startWatch(t.Context(), t, c, tt.url)
				feed := <-u.feeds
				if tt.begin != nil {
					send(t, feed, tt.begin...)
				}
				time.Sleep(time.Minute)
				if i > 0 {
					send(t, feed, podEvent("MODIFIED", "a", "5001"))
					synctest.Wait()
				}
				if got := strings.ReplaceAll(w.heard(t), " BOOKMARK:=5000 BOOKMARK", " BOOKMARK"); got != want {
					t.Errorf("watch %d: the client heard %q, want %q", i, got, want)
				}
				w.stop()
				<-w.done
			}
		})
	}
}

// A watch that was opened below its client's version does not relay what its client may have already.
func TestAnUnreadableEventBelowTheClient(t *testing.T) {
	for name, tt := range map[string]struct{ event, heard string }{
		"of an unknown type": {podEvent("RENAMED", "a", "105"), "ERROR:410"},
		"without a version":  {podEvent("MODIFIED", "a", ""), "ERROR:410"},
		"a readable one":     {podEvent("MODIFIED", "a", "105"), "MODIFIED:a=115"},
	} {
		bubble(t, name, func(t *testing.T) {
			u, c := startListed(t, "100", podJSON("a", "50"))
			u.onText("check", http.StatusOK, podsJSON("120"))
			w := startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=110")
			<-u.feeds
			go io.WriteString(<-u.feeds, tt.event+podEvent("MODIFIED", "a", "115"))
			synctest.Wait()
			if got := w.heard(t); got != tt.heard {
				t.Errorf("the client heard %q, want %q", got, tt.heard)
			}
		})
	}
}

// Where the version of the apiservers cannot be learned, a watch is opened without it.
func TestAWatchIsOpenedThoughTheVersionCannotBeAskedFor(t *testing.T) {
	for name, tt := range map[string]struct {
		check  answerFunc
		within time.Duration
	}{
		"an answer without a version":   {func(*http.Request) *http.Response { return respond(http.StatusOK, podsJSON("")) }, time.Second},
		"an answer that cannot be read": {func(*http.Request) *http.Response { return respond(http.StatusOK, "{") }, time.Second},
		"an error, time and again":      {func(*http.Request) *http.Response { return respond(http.StatusInternalServerError, "{}") }, 20 * time.Second},
		"no answer, as long as it lasts": {func(r *http.Request) *http.Response {
			<-r.Context().Done()
			return respond(http.StatusGatewayTimeout, "{}")
		}, 2 * time.Minute},
	} {
		bubble(t, name, func(t *testing.T) {
			u, c := startListed(t, "100", podJSON("a", "50"))
			u.on("check", tt.check)
			w := startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=110")
			<-u.feeds
			time.Sleep(tt.within)
			if n := u.count("watch"); n != 2 {
				t.Fatalf("the watch was opened %d times, want twice", n)
			}
			send(t, <-u.feeds, podEvent("MODIFIED", "a", "115"))
			synctest.Wait()
			if got := w.heardEvents(t); len(got) == 0 || got[len(got)-1] != "MODIFIED:a=115" {
				t.Errorf("the client heard %q", got)
			}
		})
	}
}
