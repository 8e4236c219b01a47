package cache

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/cache/view"
)

const (
	unreadable  = `{"type":"ADDED","object":{"kind":"Pod"}}` + "\n"
	urlWatchRed = urlRed + "&watch=true&allowWatchBookmarks=true&resourceVersion="
)

// A view that is lost takes along what its client has seen last, and not that it was seen: nothing older is shown then, and
// nothing that was deleted.
func TestWhatIsKnownOfAnObjectWhoseViewIsLost(t *testing.T) {
	a50, b51 := podJSON("a", "50"), podJSON("b", "51")
	traps := map[string]trap{}
	for how, lose := range map[string]func(w *trapRig){
		"of which an event cannot be read": func(w *trapRig) { w.sends(unreadable) },
		"that is evicted":                  func(w *trapRig) { w.views.Evict(w.views.Find(podsKey("node"))) },
		"that the disk does not take":      func(w *trapRig) { giveUp(w.Cache, w.views.Find(podsKey("node"))) },
		"that is refused from now on":      func(w *trapRig) { w.does(urlPods, http.StatusForbidden, "{}") },
		"whose next list is too large": func(w *trapRig) {
			w.on("list", largeList(w.T, "200", "", 0, view.MaxListBytes>>20+2))
			if _, err := readBody(w.Context(), w.T, w.Cache, urlPods); err != nil {
				w.Fatal(err)
			}
		},
	} {
		traps["changed, and shown by a view "+how] = trap{func(w *trapRig) {
			w.does(urlPodA, http.StatusOK, a50)
			w.lists(urlPods, "100", a50)
			w.watches(urlWatch+"&resourceVersion=100", podEvent("MODIFIED", "a", "110"))
			lose(w)
		}, answers{urlPodA: "503|a=110"}}
		traps["deleted, as a view has shown "+how] = trap{func(w *trapRig) {
			w.lists(urlPods, "100", a50, b51)
			w.watches(urlWatch+"&resourceVersion=100", podEvent("DELETED", "a", "110"))
			w.lists(urlRed+"&resourceVersion=0", "105", a50) // of an apiserver that lags
			lose(w)
		}, answers{urlPodA: "404|503"}}
	}
	for how, lose := range map[string]func(w *trapRig){
		"when many others are read": func(w *trapRig) {
			for i := range 1030 {
				w.does(modelURL(fmt.Sprintf("p%04d", i)), http.StatusOK, podJSON(fmt.Sprintf("p%04d", i), fmt.Sprint(200+i)))
			}
		},
		"when the disk does not take it": func(w *trapRig) {
			for _, table := range w.logState.Tables() {
				if strings.HasPrefix(table, "objects ") {
					w.logState.GivenUp(table)
				}
			}
		},
	} {
		traps["read newer than a view has it, and dropped "+how] = trap{func(w *trapRig) {
			w.lists(urlPods, "100", a50, b51)
			w.does(urlPodA, http.StatusOK, podJSON("a", "150"))
			lose(w)
		}, answers{urlPodA: "503", urlPods: "100: a=50 b=51"}}
	}
	playTraps(t, traps)
}

// In the stream of a selector DELETED means that the object has left it, and what only a stream has shown is read by the
// right to that stream.
func TestWhatIsKnownOfAnObjectThatAStreamHasShown(t *testing.T) {
	a50, b51 := podJSON("a", "50"), podJSON("b", "51")
	playTraps(t, map[string]trap{
		"DELETED in a selector's watch, of what was read by itself": {func(w *trapRig) {
			w.does(urlPodA, http.StatusOK, a50)
			w.lists(urlRed, "100", a50)
			w.watches(urlWatchRed+"100", podEvent("DELETED", "a", "110"))
		}, answers{urlPodA: "503"}},
		"DELETED in a selector's watch, of what a list of all has": {func(w *trapRig) {
			w.lists(urlPods, "100", a50)
			w.lists(urlRed, "100", a50)
			w.watches(urlWatchRed+"100", podEvent("DELETED", "a", "110"))
		}, answers{urlPodA: "503", urlPods: "100: a=50"}},
		"DELETED in a selector's watch of old at 0": {func(w *trapRig) {
			w.watches(urlWatchRed+"0", podEvent("ADDED", "a", "50"), podBookmark("55", false), podEvent("DELETED", "a", "60"))
		}, answers{urlPodA: "503"}},
		"a watch of old at 0, whose list is refused": {func(w *trapRig) {
			w.does(urlPodB, http.StatusOK, b51)
			w.watches(urlWatch+"&resourceVersion=0", podEvent("ADDED", "a", "50"), podEvent("ADDED", "b", "51"), podBookmark("98", false))
			w.does(urlPods, http.StatusForbidden, "{}")
		}, answers{urlPodA: "503|403", urlPodB: "b=51"}},
		"a watch of old at 0 of all, when those of another namespace are refused": {func(w *trapRig) {
			w.watches(urlWatch+"&resourceVersion=0", podEvent("ADDED", "a", "50"), podBookmark("98", false))
			w.does("/api/v1/namespaces/other/pods", http.StatusForbidden, "{}")
		}, answers{urlPodA: "a=50"}},
		"a watch of old at 0 that has more than is kept": {func(w *trapRig) {
			w.does(urlPodB, http.StatusOK, b51)
			for i := range 1100 {
				if i == 0 {
					w.watches(urlWatch + "&resourceVersion=0")
				}
				w.sends(podEvent("ADDED", fmt.Sprintf("p%04d", i), fmt.Sprint(100+i)))
			}
		}, answers{urlPodB: "b=51"}},
	})
}

// What is read stays, whatever was known of the object, or of others, before.
func TestWhatIsReadAgainStays(t *testing.T) {
	a50, b51 := podJSON("a", "50"), podJSON("b", "51")
	many := func(do func(name string, i int)) {
		for i := range 1024 {
			do(modelURL(fmt.Sprintf("p%04d", i)), i)
		}
	}
	anew := func(i int) string {
		return strings.Replace(podJSON("a", fmt.Sprint(100+i)), `"u-a"`, fmt.Sprintf(`"u-%d"`, i), 1)
	}
	playTraps(t, map[string]trap{
		"after a 404, for a day": {func(w *trapRig) {
			w.does(urlPodA, http.StatusNotFound, noPodA)
			w.does(urlPodA, http.StatusOK, a50)
			time.Sleep(26 * time.Hour)
		}, answers{urlPodA: "a=50"}},
		"after a 403, for a day": {func(w *trapRig) {
			w.does(urlPodA, http.StatusForbidden, "{}")
			w.does(urlPodA, http.StatusOK, a50)
			time.Sleep(26 * time.Hour)
		}, answers{urlPodA: "a=50"}},
		"after a 404, and a restart, for a day": {func(w *trapRig) {
			w.does(urlPodA, http.StatusNotFound, noPodA)
			w.does(urlPodA, http.StatusOK, a50)
			w.restart()
			time.Sleep(26 * time.Hour)
		}, answers{urlPodA: "a=50"}},
		"deleted and created a thousand times": {func(w *trapRig) {
			w.does(urlPodB, http.StatusOK, b51)
			for i := range 1200 {
				w.does(urlPodA, http.StatusNotFound, noPodA)
				w.does(urlPodA, http.StatusOK, anew(i))
			}
		}, answers{urlPodB: "b=51", urlPodA: "a=1299", urlPodC: "503"}},
		"larger, and deleted": {func(w *trapRig) {
			w.does(urlPodA, http.StatusOK, a50)
			w.does(urlPodA, http.StatusOK, podJSON("a", "60", strings.Repeat("x", 1000)))
			w.does(urlPodA, http.StatusNotFound, noPodA)
		}, answers{urlPodA: "404"}},
		"one of many, where so many others are refused that all are": {func(w *trapRig) {
			many(func(url string, i int) {
				w.does(url, http.StatusOK, podJSON(url[len(urlInNS)+1:], fmt.Sprint(i+1)))
			})
			for i := range 1100 {
				w.does(modelURL(fmt.Sprintf("q%04d", i)), http.StatusForbidden, "{}")
			}
			w.does(modelURL("p0007"), http.StatusOK, podJSON("p0007", "3000"))
		}, answers{modelURL("p0007"): "p0007=3000", modelURL("q0007"): "503|403"}},
		"many, of which all were in doubt": {func(w *trapRig) {
			read := func(url string, i int) {
				w.does(url, http.StatusOK, podJSON(url[len(urlInNS)+1:], fmt.Sprint(i+200)))
			}
			many(read)
			w.does("DELETE "+urlInNS, http.StatusOK, success)
			many(read)
		}, answers{modelURL("p0001"): "p0001=201", modelURL("p1023"): "p1023=1223"}},
	})
}
