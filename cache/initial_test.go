package cache

import (
	"net/http"
	"testing"
	"testing/synctest"
)

func TestInitialEventsAreRecognizedLikeAnApiserver(t *testing.T) {
	tests := map[string]struct {
		url    string
		events string // and then the watch ends
		want   string // offline
	}{
		"none are wanted, and there is no version": {
			urlWatch + "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan", podBookmark("101", false), "90: a=50",
		},
		"none are wanted, of whatever version": {
			urlWatch + "&sendInitialEvents=0&resourceVersion=0&resourceVersionMatch=NotOlderThan", podBookmark("101", false), "90: a=50",
		},
		"none are wanted after a version": {
			urlWatch + "&sendInitialEvents=False&resourceVersion=90", podEvent("ADDED", "z", "95"), "95: a=50 z=95",
		},
		"an empty word is a yes": {
			urlWatch + "&sendInitialEvents=&resourceVersion=80&resourceVersionMatch=NotOlderThan",
			podEvent("ADDED", "z", "95") + podEvent("ADDED", "m", "93") + podBookmark("96", true), "96: m=93 z=95",
		},
		"they break off": {
			urlWatch + "&sendInitialEvents=&resourceVersion=80&resourceVersionMatch=NotOlderThan",
			podEvent("ADDED", "z", "95") + podEvent("ADDED", "m", "93"), "90: a=50",
		},
		"a bookmark in between is not their end": {
			urlWatch + "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
			podEvent("ADDED", "z", "95") + podBookmark("96", false), "90: a=50",
		},
		"those of old end at the first bookmark": {
			urlWatch, podEvent("ADDED", "z", "95") + podEvent("ADDED", "m", "93") + podBookmark("96", false), "96: m=93 z=95",
		},
		"those of old have no end without bookmarks": {
			urlPods + "?watch=true", podEvent("ADDED", "z", "95") + podEvent("MODIFIED", "z", "97"), "90: a=50",
		},
	}
	for name, test := range tests {
		bubble(t, name, func(t *testing.T) {
			u := newUpstream()
			u.shows("90", podJSON("a", "50"))
			u.onText("watch", http.StatusOK, test.events)
			c := startCache(t, u)
			get(t, c, urlPods)
			w := startWatch(t.Context(), t, c, test.url+"&timeoutSeconds=1")
			<-w.done
			u.goAway()
			if got := get(t, c, urlPods); got != test.want {
				t.Errorf("offline: %q, want %q", got, test.want)
			}
		})
	}
}

func TestInitialEventsWithoutAnEndAreNotCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		c := startCache(t, u)
		startWatch(t.Context(), t, c, urlPods+"?watch=true")
		send(t, <-u.feeds, podEvent("ADDED", "a", "50"))
		synctest.Wait()
		if shares(c) != 0 {
			t.Error("what can never be committed is held for as long as the watch is open")
		}
	})
}
