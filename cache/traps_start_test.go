package cache

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

const (
	deletedA  = `{"kind":"Status","apiVersion":"v1","status":"Success","details":{"name":"a","kind":"pods","uid":"u-a"}}`
	urlLeases = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
	urlLeaseA = urlLeases + "/a"
)

// killed is a hub without the cloud that starts with what is on disk now.
func (w *trapRig) killed() *trapRig {
	w.Helper()
	k := &trapRig{T: w.T, upstream: newUpstream(), dir: filepath.Join(w.TempDir(), "cache")}
	if err := os.CopyFS(k.dir, os.DirFS(w.dir)); err != nil {
		w.Fatal(err)
	}
	k.goAway()
	k.Cache, k.halt = runIn(w.T, k.dir, k.upstream)
	synctest.Wait()
	return k
}

// startsDamaged restarts the hub with bits flipped in what is on disk.
func (w *trapRig) startsDamaged(text string) {
	w.Helper()
	w.halt()
	flipObject(w.T, w.dir, text)
	w.Cache, w.halt = runIn(w.T, w.dir, w.upstream)
	synctest.Wait()
}

// Renewals of leases wait for another commit. What is not there any more does not.
func TestALeaseThatIsGoneDoesNotComeBackAfterAKill(t *testing.T) {
	const lease = `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"a","namespace":"ns","uid":"u-a","resourceVersion":"50"}}`
	for name, does := range map[string]func(w *trapRig){
		"deleted": func(w *trapRig) { w.does("DELETE "+urlLeaseA, http.StatusOK, deletedA) },
		"refused": func(w *trapRig) { w.does(urlLeaseA, http.StatusForbidden, "{}") },
		"deleted, as its watch has shown": func(w *trapRig) {
			w.watches(urlLeases+"?watch=true&allowWatchBookmarks=true&resourceVersion=100", `{"type":"DELETED","object":`+lease+"}\n")
		},
	} {
		bubble(t, name, func(t *testing.T) {
			w := newTrapRig(t)
			w.does(urlLeaseA, http.StatusOK, lease)
			w.does(urlLeases, http.StatusOK, `{"kind":"LeaseList","apiVersion":"coordination.k8s.io/v1","metadata":{"resourceVersion":"100"},"items":[`+lease+`]}`)
			time.Sleep(10 * time.Minute)
			does(w)
			time.Sleep(4 * time.Second)
			if got := w.killed().reads(urlLeaseA); got == "a=50" {
				t.Error("it is back")
			}
		})
	}
}

// kubelet reads a pod before each write of its status. That a new one was refused to it for a moment, and then was not, may be half on
// disk when the hub is killed.
func TestANewPodThatWasRefusedForAMomentBeforeAKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTrapRig(t)
		w.lists(urlPodsOfNode, "100")
		w.watches(urlPodsOfNode+"&watch=true&allowWatchBookmarks=true&resourceVersion=100", podEvent("ADDED", "a", "110"))
		w.does(urlPodA, http.StatusForbidden, "{}")
		time.Sleep(4 * time.Second)
		w.does(urlPodA, http.StatusOK, podJSON("a", "110"))
		k := w.killed()
		if got := k.reads(urlPodA); got != "a=110" {
			t.Fatalf("it is %q", got)
		}
		reportStatus(t, k.Cache, "a", "10.0.0.1")
	})
}

// A refused pod is read as far as the node's list of its pods is, and no further.
func TestARefusedPodThatAListOfTheNodeHas(t *testing.T) {
	refused := func(w *trapRig) { w.does(urlPodA, http.StatusForbidden, "{}") }
	a50 := podJSON("a", "50")
	playTraps(t, map[string]trap{
		"it has": {func(w *trapRig) {
			w.lists(urlPodsOfNode, "100", a50)
			refused(w)
		}, answers{urlPodA: "a=50", metadata + urlPodA: "a=50"}},
		"it has, and so many others are refused that all are": {func(w *trapRig) {
			w.lists(urlPodsOfNode, "100", a50)
			for i := range 1100 {
				w.does(modelURL(fmt.Sprintf("q%04d", i)), http.StatusForbidden, "{}")
			}
		}, answers{urlPodA: "a=50", modelURL("q0007"): "503|403"}},
		"it has, and is refused": {func(w *trapRig) {
			w.lists(urlPodsOfNode, "100", a50)
			w.does(urlPodA, http.StatusOK, a50)
			refused(w)
			w.does(urlPodsOfNode, http.StatusForbidden, "{}")
		}, answers{urlPodA: "403", urlPodsOfNode: "403"}},
		"it has, and is behind what its client has": {func(w *trapRig) {
			w.lists(urlPodsOfNode, "100", a50)
			refused(w)
			w.does(urlPodsOfNode+"&limit=5&continue=next", http.StatusOK, podsJSON("120"))
		}, answers{urlPodA: "403", urlPodsOfNode: "503"}},
		"it had": {func(w *trapRig) {
			w.lists(urlPodsOfNode, "100", a50)
			w.watches(urlPodsOfNode+"&watch=true&allowWatchBookmarks=true&resourceVersion=100", podEvent("DELETED", "a", "110"))
			refused(w)
		}, answers{urlPodA: "403"}},
		"it has older": {func(w *trapRig) {
			w.lists(urlPodsOfNode, "100", a50)
			w.does(urlPodA, http.StatusOK, podJSON("a", "60"))
			refused(w)
		}, answers{urlPodA: "403"}},
		"it has as metadata": {func(w *trapRig) {
			w.does(metadatas+urlPodsOfNode, http.StatusOK, onlyMetadata(podsJSON("100", a50)))
			refused(w)
		}, answers{urlPodA: "403"}},
		"only lists of no node have": {func(w *trapRig) {
			w.lists(urlRed, "100", a50)
			w.lists(urlPods+"?fieldSelector=spec.nodeName%21%3Dn", "100", a50)
			refused(w)
		}, answers{urlPodA: "403"}},
		"another user's has": {func(w *trapRig) {
			w.onText("list", http.StatusOK, podsJSON("100", a50))
			ask(as(w.Context(), "coredns"), w.T, w.Cache, http.MethodGet, urlPodsOfNode)
			refused(w)
		}, answers{urlPodA: "403"}},
	})
}

// What the file knows of an object that was only shown in between still holds.
func TestAFileThatIsOpenedLateStillKnowsWhatIsGone(t *testing.T) {
	for name, does := range map[string]func(w *trapRig){
		"deleted": func(w *trapRig) { w.does("DELETE "+urlPodA, http.StatusOK, deletedA) },
		"refused": func(w *trapRig) { w.does(urlPodA, http.StatusForbidden, "{}") },
	} {
		bubble(t, name, func(t *testing.T) {
			w := newTrapRig(t)
			w.lists(urlPods, "100", podJSON("a", "50"))
			does(w)
			w.halt()
			away := w.dir + ".away"
			if err := errors.Join(os.Rename(w.dir, away), os.WriteFile(w.dir, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			w.Cache, w.halt = runIn(t, w.dir, w.upstream)
			w.watches(urlWatchRed+"0", podEvent("ADDED", "a", "50"))
			if err := errors.Join(os.Remove(w.dir), os.Rename(away, w.dir)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * lastReopen)
			if !isOpen(w.Cache) {
				t.Fatal("the file is not opened")
			}
			w.counts()
			w.loses(answers{urlPodA: "403|404|503", urlPods: "100: a=50"})
		})
	}
}

// A copy that is damaged on disk costs no other object, whatever comes to be known of its own.
func TestADamagedCopyCostsNoOther(t *testing.T) {
	for name, test := range map[string]struct {
		does func(w *trapRig)
		want answers
	}{
		"that is refused":           {func(w *trapRig) { w.does(urlPodA, http.StatusForbidden, "{}") }, answers{urlPodA: "403"}},
		"that is deleted":           {func(w *trapRig) { w.does("DELETE "+urlPodA, http.StatusOK, deletedA) }, answers{urlPodA: "404"}},
		"that is read in two forms": {func(w *trapRig) { w.does(metadata+urlPodA, http.StatusOK, onlyMetadata(podJSON("a", "50"))) }, answers{urlPodA: "503", metadata + urlPodA: "a=50"}},
		"that nobody reads":         {func(*trapRig) {}, answers{urlPodA: "503"}},
	} {
		bubble(t, name, func(t *testing.T) {
			w := newTrapRig(t)
			w.does(urlPodA, http.StatusOK, podJSON("a", "50", "damaged"))
			w.does(urlPodB, http.StatusOK, podJSON("b", "51"))
			w.startsDamaged("damaged")
			test.does(w)
			test.want[urlPodB] = "b=51"
			w.loses(test.want)
			w.counts()
		})
	}
}

// A commit is lost that was the first one of a resource: what is known only since lacks what it had.
func TestALostCommitBringsNothingBackOfAResourceThatIsKnownOnlySince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTrapRig(t)
		w.does(urlPodA, http.StatusForbidden, "{}")
		time.Sleep(5 * time.Second)
		w.lists(urlPods, "100", podJSON("a", "50"), podJSON("b", "51"))
		time.Sleep(5 * time.Second)
		w.startsDamaged(`"refused"`)
		w.loses(answers{urlPodA: "503", urlPods: "100: a=50 b=51"})
		w.counts()
	})
}
