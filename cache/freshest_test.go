package cache

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/edgehub-io/edgehub/cache/derived"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/view"
)

// podCloud are apiservers that list pods by namespace and selectors, in JSON or protobuf.
type podCloud struct {
	*upstream

	mu      sync.Mutex
	version string
	pods    []*corev1.Pod
}

func newPodCloud(version string, pods ...*corev1.Pod) *podCloud {
	p := &podCloud{upstream: newUpstream(), version: version, pods: pods}
	p.on("list", p.list)
	p.on("check", p.list)
	return p
}

func (p *podCloud) set(version string, pods ...*corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.version, p.pods = version, pods
}

// list answers with the pods of now.
func (p *podCloud) list(r *http.Request) *http.Response {
	p.mu.Lock()
	defer p.mu.Unlock()
	return listOf(r, p.version, p.pods)
}

// listOf is the answer to a list, if these are the pods at a version.
func listOf(r *http.Request, version string, pods []*corev1.Pod) *http.Response {
	byLabels, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		panic(err)
	}
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
	for _, pod := range pods {
		byFields := fields.ParseSelectorOrDie(r.URL.Query().Get("fieldSelector"))
		of := fields.Set{"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "spec.nodeName": pod.Spec.NodeName}
		in := !strings.Contains(r.URL.Path, "/namespaces/") || strings.Contains(r.URL.Path, "/"+pod.Namespace+"/")
		if in && byLabels.Matches(labels.Set(pod.Labels)) && byFields.Matches(of) {
			list.Items = append(list.Items, *pod)
		}
	}
	accept, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), accept)
	body, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion), list)
	if err != nil {
		panic(err)
	}
	res := respond(http.StatusOK, string(body))
	res.Header.Set("Content-Type", accept)
	return res
}

// aPod is a pod of node1; its name is "namespace/name", a label is of the key l.
func aPod(name, uid, version string, label ...string) *corev1.Pod {
	namespace, name, _ := strings.Cut(name, "/")
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid), ResourceVersion: version},
		Spec:       corev1.PodSpec{NodeName: "node1"},
	}
	for _, l := range label {
		p.Labels = map[string]string{"l": l}
	}
	return p
}

// listed describes a list: its version, and each pod as "namespace/name=version(uid)".
func listed(ctx context.Context, t *testing.T, c *Cache, accept, url string) string {
	t.Helper()
	r := newRequest(context.WithValue(ctx, acceptKey{}, accept), http.MethodGet, url)
	res, err := c.RoundTrip(r)
	if err != nil {
		return err.Error()
	}
	return describePods(t, res)
}

func describePods(t *testing.T, res *http.Response) string {
	t.Helper()
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		return fmt.Sprint(res.StatusCode, err)
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	list, ok := object.(*corev1.PodList)
	if !ok {
		t.Fatalf("%T, %v: %q", object, err, body)
	}
	s := list.ResourceVersion + ":"
	for i := range list.Items {
		p := &list.Items[i]
		s += fmt.Sprintf(" %s/%s=%s(%s)", p.Namespace, p.Name, p.ResourceVersion, p.UID)
	}
	return s
}

const (
	asList    = "application/json"
	nodesPods = "fieldSelector=spec.nodeName%3Dnode1"
	urlInNS   = "/api/v1/namespaces/ns/pods"
)

// A query was read once, at version 100. Since then the same user has read another one, in which
// pods were replaced, and then the cloud went away. The answer is what the query returns at the
// version of the newest list that has all of its objects, in each representation.
func TestTheFreshestListWins(t *testing.T) {
	before := []*corev1.Pod{aPod("ns/a", "1", "50", "red"), aPod("ns/b", "2", "51", "red"), aPod("ns/c", "3", "52"), aPod("other/d", "4", "53", "red")}
	after := []*corev1.Pod{
		aPod("ns/a", "1", "150"),        // changed: it has lost its label
		aPod("ns/b", "7", "151", "red"), // replaced under its name
		aPod("ns/e", "5", "152", "red"), // in the place of c
		aPod("other/d", "4", "53", "red"), aPod("other/f", "6", "153", "red"),
	}
	const old = "100: ns/a=50(1) ns/b=51(2) ns/c=52(3)"
	for name, tc := range map[string]struct{ once, newer, want string }{
		"the same query":             {urlInNS, urlInNS, "200: ns/a=150(1) ns/b=151(7) ns/e=152(5)"},
		"the same query, everywhere": {urlPods, urlPods, "200: ns/a=150(1) ns/b=151(7) ns/e=152(5) other/d=53(4) other/f=153(6)"},
		"a namespace, of all":        {urlInNS, urlPods, "200: ns/a=150(1) ns/b=151(7) ns/e=152(5)"},
		"a namespace, of the node's": {urlInNS + "?" + nodesPods, urlPods + "?" + nodesPods, "200: ns/a=150(1) ns/b=151(7) ns/e=152(5)"},
		"labels":                     {urlPods + "?labelSelector=l%3Dred", urlPods, "200: ns/b=151(7) ns/e=152(5) other/d=53(4) other/f=153(6)"},
		"labels in a namespace":      {urlInNS + "?labelSelector=l%3Dred", urlPods, "200: ns/b=151(7) ns/e=152(5)"},
		"other labels":               {urlInNS + "?labelSelector=%21l", urlInNS, "200: ns/a=150(1)"},
		"labels, of the node's":      {urlInNS + "?labelSelector=l%3Dred&" + nodesPods, urlPods + "?" + nodesPods, "200: ns/b=151(7) ns/e=152(5)"},
		"a name":                     {urlInNS + "?fieldSelector=metadata.name%3Db", urlPods, "200: ns/b=151(7)"},
		"a name that is gone":        {urlInNS + "?fieldSelector=metadata.name%3Dc", urlPods, "200:"},
		"another name":               {urlPods + "?fieldSelector=metadata.name%21%3Db%2Cmetadata.namespace%3Dns", urlPods, "200: ns/a=150(1) ns/e=152(5)"},
		// These lists may lack objects of the query: what it returned at their version is unknown.
		"the node's pods, for a list of all": {urlInNS, urlPods + "?" + nodesPods, old},
		"a namespace, for a list of all":     {urlPods + "?fieldSelector=metadata.namespace%3Dns", urlInNS, old},
		"labels, for a list of all":          {urlInNS, urlInNS + "?labelSelector=l%3Dred", old},
		// These pods could be found only by their spec.
		"all, for a list of the node's": {urlInNS + "?" + nodesPods, urlPods, old},
	} {
		for _, forms := range [][2]string{{asList, protobuf}, {protobuf, asList}, {asList, asList}} {
			if tc.once == tc.newer && forms[0] == forms[1] {
				continue
			}
			bubble(t, fmt.Sprintf("%s, %s and %s", name, forms[0], forms[1]), func(t *testing.T) {
				cloud, dir := newPodCloud("100", before...), t.TempDir()
				c, stop := runIn(t, dir, cloud.upstream)
				listed(t.Context(), t, c, forms[0], tc.once)
				listed(as(t.Context(), "another"), t, c, forms[0], tc.once)
				cloud.set("200", after...)
				listed(t.Context(), t, c, forms[1], tc.newer)
				cloud.goAway()
				stop()
				c = startIn(t, dir, cloud.upstream) // from the disk
				for range 2 {
					if got := listed(t.Context(), t, c, forms[0], tc.once); got != tc.want {
						t.Errorf("offline: %q, want %q", got, tc.want)
					}
				}
				if got := listed(t.Context(), t, c, forms[1], tc.once); got != tc.want {
					t.Errorf("offline, in the other form: %q, want %q", got, tc.want)
				}
				if got := listed(as(t.Context(), "another"), t, c, forms[0], tc.once); !strings.HasPrefix(got, "100:") {
					t.Errorf("offline, another user: %q, want its own list", got)
				}
			})
		}
	}
}

// A newer list that shows the same objects costs no conversion, and changes no version.
func TestAListOfTheSameObjectsIsNotConverted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newPodCloud("100", aPod("ns/a", "1", "50", "red"), aPod("ns/b", "2", "51"))
		c := startCache(t, cloud.upstream)
		const red = urlInNS + "?labelSelector=l%3Dred"
		listed(t.Context(), t, c, asList, red)
		cloud.set("200", aPod("ns/a", "1", "50", "red"), aPod("ns/b", "2", "150"), aPod("other/c", "3", "151", "red"))
		listed(t.Context(), t, c, protobuf, urlPods)
		cloud.goAway()
		if got, want := listed(t.Context(), t, c, asList, red), "100: ns/a=50(1)"; got != want {
			t.Errorf("offline: %q, want %q", got, want)
		}
	})
}

// The query was read later than the list from which it is answered, but cannot be served: what has
// happened in between is not taken out of that list.
func TestAListIsNotNarrowedByALaterOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newPodCloud("100", aPod("ns/a", "1", "50", "red"), aPod("ns/b", "2", "51", "red"))
		c := startCache(t, cloud.upstream)
		const red = urlPods + "?labelSelector=l%3Dred"
		listed(t.Context(), t, c, asList, urlPods)
		cloud.set("200", aPod("ns/a", "1", "50", "red"))
		listed(t.Context(), t, c, protobuf, red)
		c.views.Find(query.Key{User: query.NodeUser, Version: "v1", Resource: "pods", Labels: "l=red"}).MarkSeen("300")
		cloud.goAway()
		ctx, url := inForm(t.Context(), metadatas+red)
		if got, want := ask(ctx, t, c, http.MethodGet, url), "100: a=50/red b=51/red"; got != want {
			t.Errorf("offline, the metadata: %q, want %q", got, want)
		}
	})
}

// Invariant 4: the list of a name that does not exist removes nothing else, and is known to be empty.
func TestAnEmptyListOfANameRemovesNothingElse(t *testing.T) {
	for _, all := range []string{urlInNS, urlPods + "?labelSelector=l"} {
		bubble(t, all, func(t *testing.T) {
			cloud := newPodCloud("100", aPod("ns/a", "1", "50", "red"), aPod("ns/b", "2", "51", "red"))
			c := startCache(t, cloud.upstream)
			const nobody = urlInNS + "?fieldSelector=metadata.name%3Dnobody"
			get(t, c, all)
			for range 2 {
				expect(t, c, "the list of a name", nobody, "100:")
				expect(t, c, "all", all, "100: a=50/red b=51/red")
				if cloud.isUp() {
					cloud.goAway()
				}
			}
			expect(t, c, "GET of the name", modelURL("nobody"), "404")
		})
	}
}

// #17: of a parameter that is there twice an apiserver takes the first, and so does the hub. One that the hub does not know
// may be one that a newer apiserver does: an answer to it is neither kept nor given from the cache.
func TestListsAreKeptByTheParametersThatCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newPodCloud("100", aPod("ns/a", "1", "50", "red"), aPod("ns/b", "2", "51", "blue"))
		c := startCache(t, cloud.upstream)
		const red, blue = "?labelSelector=l%3Dred", "?labelSelector=l%3Dblue"
		get(t, c, urlPods+red+"&labelSelector=l%3Dblue")
		get(t, c, urlPods+"?unheardOf=1")
		cloud.goAway()
		expect(t, c, "offline", urlPods+red, "100: a=50/red")
		for _, url := range []string{urlPods + blue, urlPods, urlPods + red + "&unheardOf=1"} {
			if got := get(t, c, url); strings.HasPrefix(got, "100:") {
				t.Errorf("offline, %s is %q", url, got)
			}
		}
	})
}

// The list of a query that was refused, or never read, is not put together from another one.
func TestOnlyWhatWasReadIsAnsweredFromAnotherList(t *testing.T) {
	for name, tc := range map[string]struct {
		read func(u *upstream, c *Cache)
		want error
	}{
		"never read": {func(*upstream, *Cache) {}, view.ErrNeverRead},
		"refused": {func(u *upstream, c *Cache) {
			get(t, c, urlInNS)
			list := u.answers["list"]
			u.onText("list", http.StatusForbidden, "{}")
			get(t, c, urlInNS)
			u.on("list", list)
		}, view.ErrDenied},
		"only its metadata": {func(u *upstream, c *Cache) {
			const form = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
			list := u.answers["list"]
			u.on("list", func(*http.Request) *http.Response {
				res := respond(http.StatusOK, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"90"},"items":[]}`)
				res.Header.Set("Content-Type", "application/json")
				return res
			})
			ask(context.WithValue(t.Context(), acceptKey{}, form), t, c, http.MethodGet, urlInNS)
			u.on("list", list)
		}, derived.ErrOnlyMetadata},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := newPodCloud("100", aPod("ns/a", "1", "50"))
			c := startCache(t, cloud.upstream)
			tc.read(cloud.upstream, c)
			listed(t.Context(), t, c, protobuf, urlPods)
			cloud.goAway()
			if got := get(t, c, urlInNS); !strings.HasPrefix(got, tc.want.Error()) {
				t.Errorf("offline: %q, want %q", got, tc.want)
			}
		})
	}
}

// startFresher starts a cache that has a list of a namespace in JSON at version 100, and one of all
// pods in protobuf at 200. Pod a is gone there, and b has changed. The cloud is away.
func startFresher(t *testing.T) (*podCloud, *Cache, *watcher) {
	t.Helper()
	cloud := newPodCloud("100", aPod("ns/a", "u-a", "50"), aPod("ns/b", "u-b", "51"))
	c := startCache(t, cloud.upstream)
	get(t, c, urlInNS)
	w := startWatch(t.Context(), t, c, urlInNS+"?watch=true&allowWatchBookmarks=true&resourceVersion=100")
	cloud.set("200", aPod("ns/b", "u-b", "150"))
	listed(t.Context(), t, c, protobuf, urlPods)
	cloud.goAway()
	(<-cloud.feeds).CloseWithError(io.ErrUnexpectedEOF)
	synctest.Wait()
	return cloud, c, w
}

// A client that lists goes on from the version of its list: no event is left out. One that has the
// older list keeps its open watch, which resumes from where it is, and lists again if it is closed.
func TestAWatchFollowsAListFromAnotherView(t *testing.T) {
	const watchNS = urlInNS + "?watch=true&allowWatchBookmarks=true"
	synctest.Test(t, func(t *testing.T) {
		cloud, c, open := startFresher(t)
		expect(t, c, "offline", urlInNS, "200: b=150")
		from200 := startWatch(t.Context(), t, c, watchNS+"&resourceVersion=200")
		from100 := startWatch(t.Context(), t, c, watchNS+"&resourceVersion=100")
		initial := startWatch(t.Context(), t, c, watchNS+listWatch)
		reportStatus(t, c, "b", "10.0.0.1")
		time.Sleep(2 * time.Second)
		for name, tc := range map[string]struct{ got, want string }{
			"from the list's version": {from200.addresses(t), "MODIFIED:b=150@10.0.0.1 BOOKMARK:=200@"},
			"from an older version":   {from100.heard(t), "ERROR:410"},
			"with initial events":     {initial.addresses(t), "ADDED:b=150@ BOOKMARK:=200@ MODIFIED:b=150@10.0.0.1 BOOKMARK:=200@"},
			"open since before":       {open.addresses(t), "MODIFIED:b=51@10.0.0.1 BOOKMARK:=100@"},
		} {
			if tc.got != tc.want {
				t.Errorf("a watch %s: %q, want %q", name, tc.got, tc.want)
			}
		}
		cloud.forget()
		cloud.comeBack()
		time.Sleep(10 * time.Second)
		resumed := map[string]int{}
		for _, a := range cloud.all("watch") {
			resumed[a.query.Get("resourceVersion")]++
		}
		if resumed["100"] != 3 || len(resumed) != 1 { // the version of the view
			t.Errorf("watches resume from these versions: %v", resumed)
		}
	})
}

// After a restore of etcd a list from before it, whose version is higher, is not the newest.
func TestAListFromBeforeARestoreIsNotTheFreshest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newPodCloud("98", aPod("ns/a", "1", "50"))
		c := startCache(t, cloud.upstream)
		get(t, c, urlInNS)
		cloud.set("100", aPod("ns/b", "2", "99"))
		listed(t.Context(), t, c, protobuf, urlPods)
		cloud.set("95", aPod("ns/a", "1", "50"), aPod("ns/c", "3", "95"))
		get(t, c, urlInNS)          // shows that versions have gone back
		time.Sleep(5 * time.Second) // it is listed once more
		cloud.goAway()
		expect(t, c, "offline", urlInNS, "95: a=50 c=95")
	})
}

// Clients have got the newer list: the older one is never served to them again.
func TestTheOlderListDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, _ := startFresher(t)
		expect(t, c, "offline", urlInNS, "200: b=150")
		c.views.Evict(c.views.Find(query.Key{User: query.NodeUser, Version: "v1", Resource: "pods"}))
		expect(t, c, "when the newer one was lost", urlInNS, view.ErrBehind.Error())
	})
}

// The list of metadata is lost. That of whole objects is from before, and does not take its place.
func TestALostListIsNotReplacedByAnOlderForm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTrapRig(t)
		w.lists(urlPods, "90", podJSON("a", "50"))
		w.does(metadatas+urlPods, http.StatusOK, onlyMetadata(podsJSON("100", podJSON("a", "95"))))
		w.views.Find(query.Key{User: query.NodeUser, Version: "v1", Resource: "pods", Metadata: "v1"}).DropAt("100")
		time.Sleep(2 * view.SweepEvery) // what is empty is removed
		w.goAway()
		if got := w.reads(metadatas + urlPods); got != "503" {
			t.Errorf("offline, the metadata is %q", got)
		}
	})
}

// The status that the node reports is shown over the pods of the query, and over no others.
func TestAListFromAnotherViewShowsTheStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newPodCloud("100", aPod("ns/a", "u-a", "50"))
		c := startCache(t, cloud.upstream)
		const red = urlPods + "?labelSelector=l%3Dred"
		get(t, c, red)
		cloud.set("200", aPod("ns/a", "u-a", "50"), aPod("ns/b", "u-b", "150", "red"))
		listed(t.Context(), t, c, protobuf, urlPods)
		cloud.goAway()
		w := startWatch(t.Context(), t, c, red+"&watch=true"+listWatch)
		reportStatus(t, c, "a", "10.0.0.1")
		reportStatus(t, c, "b", "10.0.0.2")
		time.Sleep(2 * time.Second)
		if got, want := w.addresses(t), "ADDED:b=150/red@ BOOKMARK:=200@ MODIFIED:b=150/red@10.0.0.2"; got != want {
			t.Errorf("the watch: %q, want %q", got, want)
		}
		w = startWatch(t.Context(), t, c, red+"&watch=true"+listWatch)
		synctest.Wait()
		if got, want := w.addresses(t), "ADDED:b=150/red@10.0.0.2 BOOKMARK:=200@"; got != want {
			t.Errorf("the next watch: %q, want %q", got, want)
		}
		if got, want := get(t, c, red), "200: b=150/red"; got != want {
			t.Errorf("the list: %q, want %q", got, want)
		}
	})
}
