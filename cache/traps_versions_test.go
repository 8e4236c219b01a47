package cache

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// A commit is lost that had a list. What is on disk of the list only since is not all of it.
func TestALostCommitLeavesNoListShort(t *testing.T) {
	a50, b51 := podJSON("a", "50"), podJSON("b", "51")
	for name, since := range map[string]func(w *trapRig){
		"that was listed again with the same objects": func(w *trapRig) { w.lists(urlPods, "110", a50, b51) },
		"of which an object has changed": func(w *trapRig) {
			w.watches(urlWatch+"&resourceVersion=100", podEvent("MODIFIED", "b", "110"))
		},
		"of which there was a bookmark": func(w *trapRig) { w.watches(urlWatch+"&resourceVersion=100", podBookmark("110", false)) },
	} {
		bubble(t, name, func(t *testing.T) {
			w := newTrapRig(t)
			w.lists(urlPods, "100", a50, b51)
			time.Sleep(5 * time.Second)
			since(w)
			time.Sleep(10 * time.Minute)
			w.restart() // the client is gone
			w.startsDamaged(`"version":"100"`)
			w.loses(answers{urlPods: "503", urlPodA: "503"})
		})
	}
}

func TestVersionsThatNoObjectHas(t *testing.T) {
	playTraps(t, map[string]trap{
		"a second deletecollection, with nothing seen in between but the object": {func(w *trapRig) {
			for range 2 {
				w.does(urlPodA, http.StatusOK, podJSON("a", "50"))
				w.does("DELETE "+urlInNS, http.StatusOK, success)
			}
		}, answers{urlPodA: "503"}},
		"created at the version next to that of a list, after a table, a restart and a 404": {func(w *trapRig) {
			w.lists(urlPods, "100")
			w.does(table+urlPods, http.StatusOK, noRows)
			w.restart()
			w.does(urlPodC, http.StatusNotFound, strings.Replace(noPodA, `"a"`, `"c"`, 1))
			w.watches(urlWatch+"&resourceVersion=100", podEvent("ADDED", "c", "101"))
		}, answers{urlPodC: "c=101"}},
		"DELETED in a selector's watch, and then a list of all that lags": {func(w *trapRig) {
			w.lists(urlRed, "100", podJSON("a", "50"))
			w.watches(urlWatchRed+"100", podEvent("DELETED", "a", "110"))
			w.lists(urlPods+"?resourceVersion=0", "105", podJSON("a", "50"))
		}, answers{urlPodA: "503"}},
	})
}

// What ends a doubt, or says which object is gone, says nothing of what comes later, or of another one.
func TestWhatIsKnownOfAnObjectAfterMoreThanOneAnswer(t *testing.T) {
	a50 := podJSON("a", "50")
	deleted := func(uid string) string {
		return strings.Replace(success, "}", `,"details":{"name":"a","kind":"pods","uid":"`+uid+`"}}`, 1)
	}
	successor := strings.Replace(podEvent("ADDED", "a", "120"), "u-a", "u-b", 1)
	playTraps(t, map[string]trap{
		"read after a deletecollection, and then deleted with an answer that does not show the end": {func(w *trapRig) {
			w.lists(urlPods, "100", a50)
			w.does("DELETE "+urlInNS, http.StatusOK, success)
			w.does(urlPodA, http.StatusOK, a50)
			w.does("DELETE "+urlPodA, http.StatusAccepted, success)
		}, answers{urlPodA: "503"}},
		"deleted while no version was known, and then a list that lags": {func(w *trapRig) {
			w.does(urlPodA, http.StatusNotFound, noPodA)
			w.does("DELETE "+urlPodA, http.StatusOK, deleted("u-a"))
			w.lists(urlPods+"?resourceVersion=0", "100", a50)
		}, answers{urlPodA: "404|503"}},
		"deleted, as was the one before, whose DELETED comes late": {func(w *trapRig) {
			w.lists(urlPods, "100", a50)
			w.does("DELETE "+urlPodA, http.StatusOK, deleted("u-b"))
			w.watches(urlWatch+"&resourceVersion=100", podEvent("DELETED", "a", "110"), successor)
		}, answers{urlPodA: "404|503"}},
		"missing in a list that is refused, and then evicted": {func(w *trapRig) {
			w.does(urlPodA, http.StatusOK, a50)
			w.lists(urlPods, "100")
			w.does(urlPods, http.StatusForbidden, "{}")
			w.views.Evict(w.views.Find(podsKey("node")))
		}, answers{urlPodA: "404|503"}},
		"a 404 at resourceVersion=0 of what a list has that is refused, and then a list that lags": {func(w *trapRig) {
			w.lists(urlPods, "100", a50)
			w.does(urlPods, http.StatusForbidden, "{}")
			w.does(urlPodA+"?resourceVersion=0", http.StatusNotFound, noPodA)
			w.lists(urlRed+"&resourceVersion=0", "100", a50)
		}, answers{urlPodA: "503"}},
		"a 404 of what a list has that is refused, and then a watch that lags": {func(w *trapRig) {
			w.lists(urlRed, "90")
			w.lists(urlPods, "100", a50)
			w.does(urlPods, http.StatusForbidden, "{}")
			w.does(urlPodA, http.StatusNotFound, noPodA)
			w.watches(urlWatchRed+"90", podEvent("ADDED", "a", "110"))
		}, answers{urlPodA: "404|503"}},
	})
}
