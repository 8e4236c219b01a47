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
