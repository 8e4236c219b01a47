package cache

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// One version of an object may have different contents for two users: one of them made a dry run
// that the hub did not recognize, an apiserver of another version answered, or a
// CustomResourceDefinition gained a default. Each user reads offline what it got.
func TestUsersDoNotShareDifferentContents(t *testing.T) {
	list := podsJSON("100", podJSON("a", "50", "other"), podJSON("b", "51"))
	initial := `{"type":"ADDED","object":` + podJSON("a", "50", "other") + "}\n" + podEvent("ADDED", "b", "51") + podBookmark("100", true)
	tests := map[string]struct {
		read func(*upstream)
		url  string
		want string // what the other user reads offline
	}{
		"by GET":    {func(u *upstream) { u.onText("get", http.StatusOK, podJSON("a", "50", "other")) }, urlPodA, "a=50/other"},
		"in a LIST": {func(u *upstream) { u.onText("list", http.StatusOK, list) }, urlPods, "100: a=50/other b=51"},
		"in initial events": {
			func(u *upstream) {
				u.onText("list", http.StatusOK, list) // should the view be listed again
				u.onText("watch", http.StatusOK, initial)
			},
			urlWatch + "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1", "100: a=50/other b=51",
		},
	}
	for name, test := range tests {
		for stored, wait := range map[string]time.Duration{"at once": 0, "after a commit": 5 * time.Second} {
			bubble(t, name+", "+stored, func(t *testing.T) {
				u, c := startListed(t, "100", podJSON("a", "50", "mine"), podJSON("b", "51"))
				time.Sleep(wait)
				other, url := as(t.Context(), "other"), test.url
				test.read(u)
				if strings.Contains(url, "watch=") {
					<-startWatch(other, t, c, url).done
					url = urlPods
				} else {
					ask(other, t, c, http.MethodGet, url)
				}
				time.Sleep(wait)
				u.goAway()
				for range 2 {
					if got, want := get(t, c, urlPods), "100: a=50/mine b=51"; got != want {
						t.Errorf("one user lists %q, want %q", got, want)
					}
					if got := ask(other, t, c, http.MethodGet, url); got != test.want {
						t.Errorf("the other reads %q, want %q", got, test.want)
					}
					time.Sleep(time.Minute) // from the disk
				}
			})
		}
	}
}

// If two lists at the same resourceVersion have different contents, the last one counts.
func TestAListReplacesOtherContentsAtTheSameVersion(t *testing.T) {
	tests := map[string]struct{ pods []string }{
		"an object has other contents":          {[]string{podJSON("a", "50", "x"), podJSON("b", "51")}},
		"an object has another version":         {[]string{podJSON("a", "49"), podJSON("b", "51")}},
		"an object is gone":                     {[]string{podJSON("b", "51")}},
		"there is another object":               {[]string{podJSON("a", "50"), podJSON("b", "51"), podJSON("c", "52")}},
		"an object is gone, and another there":  {[]string{podJSON("a", "50"), podJSON("c", "52")}},
		"nothing has changed":                   {[]string{podJSON("a", "50"), podJSON("b", "51")}},
		"all have other contents of one length": {[]string{podJSON("a", "50", "y"), podJSON("b", "51", "z")}},
	}
	for name, test := range tests {
		bubble(t, name, func(t *testing.T) {
			u := newUpstream()
			u.shows("100", podJSON("a", "50"), podJSON("b", "51"))
			dir := t.TempDir()
			c, stop := runIn(t, dir, u)
			get(t, c, urlPods)
			time.Sleep(5 * time.Second)
			u.shows("100", test.pods...)
			want := get(t, c, urlPods)
			u.goAway()
			if got := get(t, c, urlPods); got != want {
				t.Errorf("offline: %q, want %q", got, want)
			}
			stop()
			c = startIn(t, dir, u)
			if got := get(t, c, urlPods); got != want {
				t.Errorf("offline, after a start: %q, want %q", got, want)
			}
		})
	}
}

// Two streams of a view come from apiservers of two versions. An event that repeats a version with
// other contents changes nothing, whichever stream is first.
func TestAnEventThatRepeatsAVersionWithOtherContentsChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50"))
		var feeds []*io.PipeWriter
		for range 2 {
			startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=100")
			feeds = append(feeds, <-u.feeds)
		}
		for i, label := range []string{"first", "second"} {
			send(t, feeds[i], `{"type":"MODIFIED","object":`+podJSON("a", "101", label)+"}\n")
			synctest.Wait()
		}
		u.goAway()
		for range 2 {
			expect(t, c, "offline", urlPods, "101: a=101/first")
			time.Sleep(5 * time.Second)
		}
	})
}

// A list with other contents of the same version does not change the answer to a GET.
func TestAListDoesNotChangeTheAnswerToAGetOfTheSameVersion(t *testing.T) {
	for _, first := range []string{urlPods, urlPodA} {
		synctest.Test(t, func(t *testing.T) {
			u := newUpstream()
			dir := t.TempDir()
			c, stop := runIn(t, dir, u)
			u.shows("100", podJSON("a", "50", "listed"))
			if first == urlPodA {
				u.onText("get", http.StatusOK, podJSON("a", "50", "got"))
				get(t, c, urlPodA)
			}
			get(t, c, urlPods)
			u.onText("get", http.StatusOK, podJSON("a", "50", "got"))
			get(t, c, urlPodA)
			u.goAway()
			for range 2 {
				expect(t, c, "GET offline", urlPodA, "a=50/got")
				expect(t, c, "LIST offline", urlPods, "100: a=50/listed")
				stop()
				c, stop = runIn(t, dir, u)
			}
		})
	}
}

// The last GET counts, also at the same version.
func TestAGetReplacesOtherContentsAtTheSameVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		c := startCache(t, u)
		for _, label := range []string{"x", "y", "long enough to be of another size"} {
			u.shows("100", podJSON("a", "50", label))
			get(t, c, urlPodA)
		}
		u.goAway()
		expect(t, c, "offline", urlPodA, "a=50/long enough to be of another size")
	})
}
