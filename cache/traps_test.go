package cache

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/cache/view"
)

// Each of these is a way in which a cache that looks right is wrong: it brings back what was deleted, shows something
// older than its client has seen, says of an object that was seen that it does not exist, or refuses for good what could
// be read.
func TestWhatIsKnownOfAnObjectOffline(t *testing.T) {
	a50, b51, c52 := podJSON("a", "50"), podJSON("b", "51"), podJSON("c", "52")
	a150, c160 := podJSON("a", "150"), podJSON("c", "160")
	playTraps(t, map[string]trap{
		"a 404 at resourceVersion=0, of an apiserver that lags": {func(w *trapRig) {
			w.lists(urlPods, "100", a50)
			w.does(urlPodA, http.StatusOK, a50)
			w.does(urlPodA+"?resourceVersion=0", http.StatusNotFound, noPodA)
		}, answers{urlPodA: "503", urlPods: "100: a=50"}},
		"a 404 at resourceVersion=0 of what was never read": {func(w *trapRig) {
			w.does(urlPodA+"?resourceVersion=0", http.StatusNotFound, noPodA)
		}, answers{urlPodA: "503", urlPods: "503"}},
		"a 404 at resourceVersion=0, and then a bookmark": {func(w *trapRig) {
			w.lists(urlPods, "100", a50)
			w.does(urlPodA+"?resourceVersion=0", http.StatusNotFound, noPodA)
			w.watches(urlWatch+"&resourceVersion=100", podBookmark("110", false))
		}, answers{urlPodA: "a=50", urlPods: "110: a=50"}},
		"a 404, and then a watch that has not come to the deletion": {func(w *trapRig) {
			w.lists(urlPods, "100", a50, b51)
			w.does(urlPodA, http.StatusNotFound, noPodA)
			w.watches(urlWatch+"&resourceVersion=100", podEvent("MODIFIED", "a", "110"), podBookmark("120", false))
		}, answers{urlPods: "120: a=110 b=51", urlPodA: "404"}},
		"a list of which the client reads the first page only": {func(w *trapRig) {
			w.lists(urlPods, "100", a50, b51)
			w.pages("200", a150, c160)
		}, answers{urlPods: "100: a=50 b=51", urlPodC: "503|c=160", urlPodB: "b=51", urlPodA: "503|a=150"}},
		"a list whose second page fails": {func(w *trapRig) {
			w.lists(urlPods, "100", a50, b51)
			w.pages("200", a150, c160)
			w.does(urlPods+"?limit=2&continue=next", http.StatusInternalServerError, "{}")
		}, answers{urlPods: "100: a=50 b=51", urlPodC: "503|c=160", urlPodB: "b=51", urlPodA: "503|a=150"}},
		"a list whose second page is of another version": {func(w *trapRig) {
			w.lists(urlPods, "100", a50, b51)
			w.pages("200", a150, c160)
			w.lists(urlPods+"?limit=2&continue=next", "210", podJSON("d", "170"))
		}, answers{urlPods: "100: a=50 b=51|503", urlPodC: "503|c=160", urlInNS + "/d": "503|d=170", urlPodA: "503|a=150"}},
		"a list that breaks off": {func(w *trapRig) {
			w.lists(urlPods, "100", a50, b51)
			body := podsJSON("200", a150, c160, b51)
			w.does(urlPods, http.StatusOK, body[:len(body)-20])
		}, answers{urlPods: "100: a=50 b=51", urlPodC: "503|c=160", urlPodB: "b=51", urlPodA: "503|a=150"}},
		"initial events that break off": {func(w *trapRig) {
			w.lists(urlPods, "100", a50, b51)
			w.watches(urlInitial, podEvent("ADDED", "a", "150"), podEvent("ADDED", "c", "160"))
			w.breaks()
		}, answers{urlPods: "100: a=50 b=51", urlPodC: "503|c=160", urlPodB: "b=51", urlPodA: "503|a=150"}},
		"a list that is too large": {func(w *trapRig) {
			w.does(urlInNS+"/p0", http.StatusOK, podJSON("p0", "40"))
			w.on("list", largeList(w.T, "200", "", 0, view.MaxListBytes>>20+2))
			if _, err := readBody(context.WithValue(w.Context(), acceptKey{}, protobuf), w.T, w.Cache, urlPods); err != nil {
				w.Fatal(err)
			}
		}, answers{urlPods: "503", urlInNS + "/p1": "503|p1=50", urlInNS + "/p0": "503|p0=50"}},
		"a table": {func(w *trapRig) {
			w.lists(urlPods, "100", a50, b51)
			w.does(table+urlPods, http.StatusOK, noRows)
		}, answers{urlPods: "100: a=50 b=51", urlPodA: "a=50", urlPodC: "503", urlPodB: "b=51"}},
		"tables of pods that kubelet watches": {func(w *trapRig) {
			w.lists(urlPodsOfNode, "100", a50, b51)
			w.watches(urlPodsOfNode+"&watch=true&allowWatchBookmarks=true&resourceVersion=100", podEvent("MODIFIED", "b", "110"))
			for _, url := range []string{urlPods, urlInNS, urlPodA} {
				w.does(table+url, http.StatusOK, noRows)
			}
		}, answers{urlPodA: "a=50", urlPodB: "b=110", urlPodsOfNode: "110: a=50 b=110"}},
		"DELETED in the watch of a selector": {func(w *trapRig) {
			w.lists(urlPods, "100", a50, b51)
			w.lists(urlRed, "110", podJSON("a", "105", "red"))
			w.watches(urlRed+"&watch=true&allowWatchBookmarks=true&resourceVersion=110", podEvent("DELETED", "a", "120"))
		}, answers{urlPods: "100: a=50 b=51", urlPodA: "503", urlRed: "120:"}},
		"/scale, which is another object": {func(w *trapRig) {
			scale := strings.NewReplacer(`"Pod"`, `"Scale"`, `"v1"`, `"autoscaling/v1"`)
			w.does(urlPodA, http.StatusOK, a50)
			w.does(urlPodA+"/scale", http.StatusOK, scale.Replace(podJSON("a", "60")))
			w.does("PUT "+urlPodA+"/scale", http.StatusOK, scale.Replace(podJSON("a", "61")))
			w.does("PATCH "+urlPodA+"/scale", http.StatusNotFound, noPodA)
			w.does(urlPodA+"/scale", http.StatusForbidden, "{}")
		}, answers{urlPodA: "a=50", urlPodA + "/scale": "503"}},
		"dry runs": {func(w *trapRig) {
			w.lists(urlPods, "100", a50, b51)
			w.does(urlPodA, http.StatusOK, a50)
			w.does("PATCH "+urlPodA+"?dryRun=All", http.StatusOK, podJSON("a", "50", "dry"))
			w.does("PUT "+urlPodA+"/status?dryRun=All", http.StatusOK, podJSON("a", "60", "dry"))
			w.does("DELETE "+urlPodA+"?dryRun=All", http.StatusOK, a50)
			w.does("DELETE "+urlPods+"?dryRun=All", http.StatusOK, success)
			w.does("POST "+urlInNS+"?dryRun=All", http.StatusCreated, podJSON("c", "70"))
		}, answers{urlPodA: "a=50", urlPodB: "b=51", urlPodC: "404", urlPods: "100: a=50 b=51"}},
		"a creation that is answered in a form that is not kept": {func(w *trapRig) {
			w.lists(urlPods, "100", a50)
			w.does("POST "+table+urlInNS, http.StatusCreated, noRows)
		}, answers{urlPods: "100: a=50", urlPodA: "a=50", urlPodC: "503"}},
		"who survives a deletecollection": {func(w *trapRig) {
			w.lists(urlPods, "100", a50, b51, c52)
			w.watches(urlWatch + "&resourceVersion=100")
			w.does("DELETE "+urlInNS+"?labelSelector=l", http.StatusOK, success)
			w.sends(podEvent("DELETED", "a", "110"), podBookmark("120", false))
		}, answers{urlPodA: "404", urlPodB: "b=51", urlPodC: "c=52", urlPods: "120: b=51 c=52"}},
		"a deletecollection of whose end nothing is seen": {func(w *trapRig) {
			w.lists(urlPods, "100", a50, b51, c52)
			w.does("DELETE "+urlInNS+"?labelSelector=l", http.StatusOK, success)
			w.does(urlPodC, http.StatusOK, c52)
		}, answers{urlPodA: "503", urlPodB: "503", urlPodC: "c=52", urlPods: "100: a=50 b=51 c=52"}},
		"an informer of metadata beside one of whole objects": {func(w *trapRig) {
			w.lists(urlPods, "100", a50, b51)
			w.does(metadatas+urlPods, http.StatusOK, onlyMetadata(podsJSON("100", a50, b51)))
			w.watches(metadatas+urlWatch+"&resourceVersion=100", onlyMetadata(podEvent("MODIFIED", "a", "110")+podEvent("DELETED", "b", "120")))
		}, answers{urlPodA: "503", metadata + urlPodA: "a=110", urlPodB: "404", urlPods: "100: a=50 b=51", metadatas + urlPods: "120: a=110"}},
		"an informer of metadata, to which one of whole objects catches up": {func(w *trapRig) {
			w.lists(urlPods, "100", a50, b51)
			w.does(metadatas+urlPods, http.StatusOK, onlyMetadata(podsJSON("100", a50, b51)))
			w.watches(metadatas+urlWatch+"&resourceVersion=100", onlyMetadata(podEvent("MODIFIED", "a", "110")))
			w.watches(urlWatch+"&resourceVersion=100", podEvent("MODIFIED", "a", "110"))
		}, answers{urlPodA: "a=110", metadata + urlPodA: "a=110", urlPodB: "b=51"}},
		"a watch of old at 0, that goes on": {func(w *trapRig) {
			w.lists(urlPods, "90", a50)
			w.watches(urlWatch+"&resourceVersion=0", podEvent("ADDED", "c", "95"), podEvent("ADDED", "b", "93"))
		}, answers{urlPods: "90: a=50", urlPodC: "503|c=95", urlPodB: "503|b=93", urlPodA: "503|a=50"}},
		"a watch of old at 0, that comes to a bookmark": {func(w *trapRig) {
			w.lists(urlPods, "90", a50)
			w.watches(urlWatch+"&resourceVersion=0", podEvent("ADDED", "c", "95"), podEvent("ADDED", "b", "93"), podEvent("MODIFIED", "c", "97"), podBookmark("98", false))
		}, answers{urlPodC: "c=97", urlPodB: "b=93", urlPods: "90: a=50"}},
	})
}

// A kind has two versions, whose objects are the same ones.
func TestWhatIsKnownOfAnObjectInTwoAPIVersions(t *testing.T) {
	const v1, beta = urlFoos + "/x", "/apis/example.com/v1beta1/foos/x"
	inBeta := strings.NewReplacer("/v1", "/v1beta1")
	playTraps(t, map[string]trap{
		"deleted": {func(w *trapRig) {
			w.does(v1, http.StatusOK, fooJSON("50"))
			w.does("DELETE "+beta, http.StatusOK, `{"kind":"Status","apiVersion":"v1","status":"Success","details":{"name":"x","kind":"foos","group":"example.com"}}`)
		}, answers{v1: "404|503"}},
		"read": {func(w *trapRig) {
			w.does(v1, http.StatusOK, fooJSON("50"))
			w.does(beta, http.StatusOK, inBeta.Replace(fooJSON("130")))
		}, answers{v1: "503", beta: "x=130"}},
		"refused": {func(w *trapRig) {
			w.does(v1, http.StatusOK, fooJSON("50"))
			w.does(beta, http.StatusForbidden, "{}")
		}, answers{v1: "403", beta: "403"}},
	})
}

// kubelet lists and watches one Secret at a time. It keeps what it has, whatever else is refused to the node, or to
// callers without credentials, who are the node.
func TestWhatIsKnownOfSecretsOffline(t *testing.T) {
	const inNS, all = "/api/v1/namespaces/ns/secrets", "/api/v1/secrets"
	const a, b, c = inNS + "/a", inNS + "/b", inNS + "/c"
	a50, b51, c52 := secretJSON("a", "50"), secretJSON("b", "51"), secretJSON("c", "52")
	watchA, bookmark := urlOnlyA+"&watch=true&allowWatchBookmarks=true&resourceVersion=100", strings.Replace(podBookmark("110", false), "Pod", "Secret", 1)
	both := func(w *trapRig) {
		w.does(urlOnlyA, http.StatusOK, secretsJSON("100", a50))
		w.does(urlOnlyB, http.StatusOK, secretsJSON("100", b51))
	}
	refused := func(w *trapRig, url string) { w.does(url, http.StatusForbidden, "{}") }
	doubted := func(w *trapRig) { w.does("DELETE "+inNS+"?labelSelector=l", http.StatusOK, success) }
	stay := func(and answers) answers {
		want := answers{urlOnlyA: "100: a=50", a: "a=50", urlOnlyB: "100: b=51", b: "b=51", c: "503"}
		maps.Copy(want, and)
		return want
	}
	playTraps(t, map[string]trap{
		"one is refused": {func(w *trapRig) {
			both(w)
			refused(w, urlOnlyA)
		}, stay(answers{urlOnlyA: "403", a: "503"})},
		"one is refused, that was read by itself": {func(w *trapRig) {
			both(w)
			w.does(a, http.StatusOK, a50)
			refused(w, urlOnlyA)
		}, stay(answers{urlOnlyA: "403"})},
		"those of a namespace are refused": {func(w *trapRig) {
			both(w)
			refused(w, inNS)
		}, stay(answers{inNS: "403|503"})},
		"all are refused": {func(w *trapRig) {
			both(w)
			refused(w, all)
		}, stay(answers{all: "403|503", inNS: "503"})},
		"those of a namespace are refused, after they were shown": {func(w *trapRig) {
			both(w)
			w.does(inNS, http.StatusOK, secretsJSON("100", a50, b51, c52))
			refused(w, inNS)
		}, stay(answers{inNS: "403"})},
		"all are refused, after they were shown newer": {func(w *trapRig) {
			both(w)
			w.does(all, http.StatusOK, secretsJSON("120", secretJSON("a", "110"), b51, c52))
			refused(w, all)
		}, stay(answers{all: "403", a: "503"})},
		"all are refused, after they were shown newer, and one is watched": {func(w *trapRig) {
			both(w)
			w.does(all, http.StatusOK, secretsJSON("120", secretJSON("a", "110"), b51, c52))
			refused(w, all)
			w.watches(watchA, fmt.Sprintf(`{"type":"MODIFIED","object":%s}`+"\n", secretJSON("a", "110")))
		}, stay(answers{all: "403", urlOnlyA: "110: a=110", a: "a=110"})},
		"all are in doubt": {func(w *trapRig) {
			both(w)
			doubted(w)
		}, stay(answers{a: "503", b: "503"})},
		"all are in doubt, and never change again": {func(w *trapRig) {
			both(w)
			doubted(w)
			w.restart()
			w.watches(watchA, bookmark)
			w.does(b, http.StatusOK, b51)
		}, stay(answers{urlOnlyA: "110: a=50"})},
		"one is in doubt, whose deletion was only accepted": {func(w *trapRig) {
			both(w)
			w.does("DELETE "+a, http.StatusAccepted, success)
		}, stay(answers{a: "503"})},
		"one is in doubt, whose deletion was only accepted, and stays": {func(w *trapRig) {
			both(w)
			w.does("DELETE "+a, http.StatusAccepted, success)
			w.restart()
			w.watches(watchA, bookmark)
		}, stay(answers{urlOnlyA: "110: a=50"})},
	})
}

// What was known before a restore says nothing of the objects after it.
func TestWhatIsKnownAfterARestoreToALowerVersion(t *testing.T) {
	a50, b51 := podJSON("a", "50"), podJSON("b", "51")
	before := func(w *trapRig) {
		w.lists(urlPods, "100", a50, b51)
		w.does(urlPodA, http.StatusNotFound, noPodA)
		w.does("DELETE "+urlInNS, http.StatusOK, success)
		w.does(table+urlPods, http.StatusOK, noRows)
	}
	playTraps(t, map[string]trap{
		"with a list": {func(w *trapRig) {
			before(w)
			w.lists(urlPods, "90", a50)
			w.lists(urlPods, "90", a50) // the first one shows it
		}, answers{urlPodA: "a=50", urlPodB: "404", urlPods: "90: a=50"}},
		"with an open watch, and nothing is listed": {func(w *trapRig) {
			before(w)
			w.watches(urlWatch+"&resourceVersion=100", podEvent("MODIFIED", "b", "110"))
			w.onText("check", http.StatusOK, podsJSON("90", a50))
			w.breaks()
		}, answers{urlPodB: "503", urlPods: "503"}},
	})
}

// What is known of deletions is bounded. One that had to go brings nothing back, whatever an older list shows.
func TestADeletionThatIsForgottenBringsNothingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1100 // more than are kept
		all := make([]string, n)
		for i := range all {
			all[i] = podJSON(fmt.Sprintf("p%04d", i), fmt.Sprint(i+1))
		}
		w := newTrapRig(t)
		w.lists(urlPods, "2000", all...)
		w.does(urlPodA, http.StatusOK, podJSON("a", "3000"))
		w.on("get", notFoundPod)
		for i := range n {
			get(t, w.Cache, modelURL(fmt.Sprintf("p%04d", i)))
		}
		want := answers{urlPods: described(t, []byte(podsJSON("2000", all...)))}
		for i := range n {
			want[modelURL(fmt.Sprintf("p%04d", i))] = "404|503"
		}
		w.watches(urlWatch+"&resourceVersion=2000", podBookmark("2500", false))
		want[urlPods] = strings.Replace(want[urlPods], "2000:", "2500:", 1)
		w.loses(want)
	})
}

// A client lists in JSON and in protobuf in turns. Neither form gets older than the other, and what only JSON has stays.
func TestListsInTwoFormsInTurns(t *testing.T) {
	const unknown = `,"unheardOf":"by the hub"}`
	a50 := strings.TrimSuffix(podJSON("a", "50"), "}") + unknown
	for name, newer := range map[string]struct {
		version string
		pods    []*corev1.Pod
	}{
		"nothing has changed":        {"100", []*corev1.Pod{aPod("ns/a", "u-a", "50")}},
		"another object has changed": {"120", []*corev1.Pod{aPod("ns/a", "u-a", "50"), aPod("ns/b", "u-b", "110")}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud, dir := newPodCloud(newer.version, newer.pods...), t.TempDir()
				c, stop := runIn(t, dir, cloud.upstream)
				cloud.onText("list", http.StatusOK, podsJSON("100", a50))
				get(t, c, urlPods)
				cloud.on("list", cloud.list)
				want := listed(t.Context(), t, c, protobuf, urlPods)
				cloud.goAway()
				for range 2 {
					for _, form := range []string{protobuf, asList} {
						if got := listed(t.Context(), t, c, form, urlPods); got != want {
							t.Errorf("as %s: %q, want %q", form, got, want)
						}
					}
					if body, err := readBody(t.Context(), t, c, urlPods); err != nil || !strings.Contains(string(body), unknown) {
						t.Errorf("in JSON there is %s, %v", body, err)
					}
					stop()
					c, stop = runIn(t, dir, cloud.upstream)
				}
			})
		})
	}
}
