package transform_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/edgehub-io/edgehub/cache/wire"
	"github.com/edgehub-io/edgehub/proxy/topology"
)

// watched is a watch through the filters, and the apiserver behind it. It is used in a bubble of
// synctest, whose Wait is over when all events have come.
type watched struct {
	*filters
	upstream *io.PipeWriter

	mu     sync.Mutex
	list   func(*http.Request) *http.Response // answers LISTs
	lists  []string                           // their queries
	events []string                           // that have come: TYPE, the item as itemsOf has it, and "bookmark VERSION"
	seen   []string                           // their resourceVersions
}

// openWatch opens a watch; query is without watch=true. It is read from at once: before sets what
// the filters know, and the answers to LISTs, of no Services otherwise.
func openWatch(t *testing.T, mediaType, user string, info request.RequestInfo, query string, before func(*watched)) *watched {
	t.Helper()
	in, out := io.Pipe()
	w := &watched{upstream: out}
	w.filters = newFilters(t, mediaType, func(r *http.Request) *http.Response {
		if i, _ := request.RequestInfoFrom(r.Context()); i.Verb == "list" {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.lists = append(w.lists, r.URL.RawQuery)
			return w.list(r)
		}
		return &http.Response{StatusCode: http.StatusOK, Request: r, Header: http.Header{"Content-Type": {mediaType + ";stream=watch"}}, Body: in, ContentLength: -1}
	})
	w.answerLists(serviceList(100))
	if before != nil {
		before(w)
	}
	res := w.send(user, info, "watch=true&"+query)
	t.Cleanup(func() { out.Close() })
	go w.read(res.Body)
	return w
}

func (w *watched) answerLists(o runtime.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = answering(w.t, w.mediaType, o)
}

func (w *watched) read(body io.Reader) {
	frames, err := wire.NewFrameReader(body, wire.ParseContentType(w.mediaType).Encoding)
	if err != nil {
		w.t.Error(err)
		return
	}
	for {
		f, err := frames.Next()
		if err != nil {
			return
		}
		if f.Type == "" {
			continue
		}
		text, version := string(f.Type), string(f.Meta.ResourceVersion)
		if f.Type == watch.Bookmark {
			text = "bookmark " + version
		} else {
			text += " " + itemsOf(w.t, decode(w.t, w.mediaType, f.Object))[0]
		}
		w.mu.Lock()
		w.events, w.seen = append(w.events, text), append(w.seen, version)
		w.mu.Unlock()
	}
}

// sends has the apiserver send an event.
func (w *watched) sends(event watch.EventType, o runtime.Object) {
	w.t.Helper()
	if _, err := w.upstream.Write(encodeEvent(w.t, w.mediaType, event, o)); err != nil {
		w.t.Fatal(err)
	}
}

// want waits for what comes, and checks the events since the last call.
func (w *watched) want(events ...string) {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if strings.Join(w.events, "; ") != strings.Join(events, "; ") {
		w.t.Errorf("got\n%q, want\n%q", w.events, events)
	}
	w.events = nil
}

// later lets the shortest time between two lists pass.
func (w *watched) later() { time.Sleep(10 * time.Second) } //nolint:forbidigo // of synctest's clock

// wantLists checks how often the apiserver was asked for a list.
func (w *watched) wantLists(n int) {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.lists) != n {
		w.t.Errorf("%d lists: %q", len(w.lists), w.lists)
	}
}

// inBubbles runs a test with each encoding.
func inBubbles(t *testing.T, test func(t *testing.T, mediaType string)) {
	t.Helper()
	for _, mediaType := range encodings {
		t.Run(mediaType, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, mediaType) })
		})
	}
}

func bookmark(kind, version string) runtime.Object {
	if kind == "Service" {
		return &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kind}, ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}
	}
	return &discoveryv1.EndpointSlice{TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: kind}, ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}
}

// initialEventsEnd is the bookmark that ends initial events.
func initialEventsEnd(kind, version string) runtime.Object {
	o := bookmark(kind, version)
	o.(metav1.Object).SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	return o
}

const (
	nodeOnly  = "kubernetes.io/hostname"
	watchList = "allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&labelSelector=x"
)

func TestAWatchFollowsTheAnnotationsOfServices(t *testing.T) {
	inBubbles(t, func(t *testing.T, mediaType string) {
		w := openWatch(t, mediaType, kubeProxy, slicesInfo("watch"), watchList, nil)
		w.sends(watch.Added, slice("a", "s", 90))
		w.want("ADDED a/s-x" + wholeSlice)
		w.annotate("a/s", topology.KeysAnnotation, nodeOnly, 101)
		w.want() // not before the initial events have ended
		w.answerLists(sliceList(102, slice("a", "s", 90), slice("a", "other", 91), slice("b", "s", 92)))
		w.sends(watch.Bookmark, initialEventsEnd("EndpointSlice", "95"))
		w.want("bookmark 95", "MODIFIED a/s-x n1", "bookmark 95")
		w.wantLists(1)
		if want := "labelSelector=x%2Ckubernetes.io%2Fservice-name+in+%28s%29"; w.lists[0] != want {
			t.Errorf("the list is of %q", w.lists[0])
		}
		for range 100 {
			w.annotate("a/s", topology.KeysAnnotation, "", 103)
			synctest.Wait()
			w.annotate("a/s", topology.KeysAnnotation, "kubernetes.io/zone", 103)
			synctest.Wait()
		}
		w.want("MODIFIED a/s-x"+wholeSlice, "bookmark 95", "MODIFIED a/s-x n1 n2", "bookmark 95")
		w.wantLists(3) // at once: whoever may write one Service must not cause a list on every node each time
		w.later()
		w.want("MODIFIED a/s-x n1 n2", "bookmark 95")
		w.wantLists(4)
		w.annotate("a/s", topology.KeysAnnotation, "", 104)
		w.later()
		w.want("MODIFIED a/s-x"+wholeSlice, "bookmark 95")
		versions := map[string]bool{}
		for _, v := range w.seen {
			versions[v] = true
		}
		if len(versions) != 4 { // 90, 95 and two of its own
			t.Errorf("an informer would ignore some of the versions %q", w.seen)
		}
	})
}

func TestEventsAreFilteredAsTheyCome(t *testing.T) {
	inBubbles(t, func(t *testing.T, mediaType string) {
		w := openWatch(t, mediaType, coreDNS, slicesInfo("watch"), "allowWatchBookmarks=true&resourceVersion=100", func(w *watched) {
			w.annotate("a/s", topology.KeysAnnotation, nodeOnly, 99)
		})
		w.want()
		w.sends(watch.Added, slice("a", "s", 110))
		w.want("ADDED a/s-x n1", "bookmark 110")
		w.sends(watch.Modified, slice("a", "other", 111))
		w.want("MODIFIED a/other-x" + wholeSlice)
		w.sends(watch.Modified, slice("a", "s", 112))
		w.want("MODIFIED a/s-x n1", "bookmark 112")
		w.sends(watch.Deleted, slice("a", "s", 113))
		w.want("DELETED a/s-x" + wholeSlice)
	})
}

// What is newer than the stream comes by the stream: the client could not resume from it.
func TestAWatchSendsNothingAgainThatTheStreamIsAboutToBring(t *testing.T) {
	inBubbles(t, func(t *testing.T, mediaType string) {
		w := openWatch(t, mediaType, kubeProxy, slicesInfo("watch"), "resourceVersion=100", nil)
		w.want()
		w.answerLists(sliceList(120, slice("a", "s", 119)))
		w.annotate("a/s", topology.KeysAnnotation, nodeOnly, 118)
		w.want()
		w.sends(watch.Modified, slice("a", "s", 119))
		w.want("MODIFIED a/s-x n1")
	})
}

func TestAResumedWatchMakesUpForWhatTheClientHasMissed(t *testing.T) {
	for name, tt := range map[string]struct {
		from  string
		setUp func(*filters)
		want  []string
	}{
		"nothing has changed":   {"100", nil, nil},
		"an annotation of old":  {"100", func(f *filters) { f.annotate("a/s", topology.KeysAnnotation, nodeOnly, 90) }, nil},
		"an annotation was set": {"105", func(f *filters) { f.annotate("a/s", topology.KeysAnnotation, nodeOnly, 110) }, []string{"MODIFIED a/s-x n1", "bookmark 105"}},
		"an annotation was set, and taken away": {"105", func(f *filters) {
			f.annotate("a/s", topology.KeysAnnotation, nodeOnly, 110)
			f.annotate("a/s", "", "", 111)
		}, []string{"MODIFIED a/s-x" + wholeSlice, "bookmark 105"}},
		"the hub was started meanwhile":           {"95", func(f *filters) { f.annotate("a/s", topology.KeysAnnotation, nodeOnly, 90) }, []string{"MODIFIED a/s-x n1", "bookmark 95"}},
		"the hub was started, and one taken away": {"95", func(f *filters) { f.annotate("a/s", "", "", 97) }, []string{"MODIFIED a/s-x" + wholeSlice, "bookmark 95"}},
		"the pool has another node": {"105", func(f *filters) {
			f.annotate("a/s", topology.KeysAnnotation, "openyurt.io/nodepool", 90)
			f.state.SetMembers("p1", map[string]bool{"n1": true, "n4": true}, "120")
		}, []string{"MODIFIED a/s-x n1 n4", "bookmark 105"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := openWatch(t, runtime.ContentTypeProtobuf, kubeProxy, slicesInfo("watch"), "allowWatchBookmarks=true&resourceVersion="+tt.from, func(w *watched) {
					w.answerLists(sliceList(200, slice("a", "s", 80), slice("a", "plain", 81)))
					if tt.setUp != nil {
						tt.setUp(w.filters)
					}
				})
				w.want(tt.want...)
				w.wantLists(min(len(tt.want), 1))
			})
		})
	}
}

func TestAServiceThatBeginsOrCeasesToBeDroppedIsDeletedOrAdded(t *testing.T) {
	on, off := map[string]string{topology.DiscardAnnotation: "true"}, map[string]string(nil)
	balancer := func(version int, annotations map[string]string) *corev1.Service {
		return annotatedService("s", corev1.ServiceTypeLoadBalancer, version, annotations)
	}
	inBubbles(t, func(t *testing.T, mediaType string) {
		w := openWatch(t, mediaType, kubeProxy, servicesInfo("watch"), watchList, nil)
		w.sends(watch.Added, balancer(90, on))
		w.sends(watch.Added, annotatedService("other", corev1.ServiceTypeLoadBalancer, 91, off))
		w.want("ADDED a/other")
		w.sends(watch.Bookmark, initialEventsEnd("Service", "95"))
		w.want("bookmark 95")
		w.sends(watch.Modified, balancer(101, on))
		w.want("bookmark 101")
		w.sends(watch.Modified, balancer(102, off))
		w.want("ADDED a/s", "bookmark 102")
		w.sends(watch.Modified, balancer(103, off))
		w.want("MODIFIED a/s")
		w.sends(watch.Modified, balancer(104, on))
		w.want("DELETED a/s", "bookmark 104")
		w.sends(watch.Modified, balancer(105, on))
		w.sends(watch.Deleted, balancer(106, on))
		w.want("bookmark 105", "bookmark 106")
		w.sends(watch.Added, balancer(107, off))
		w.sends(watch.Deleted, balancer(108, off))
		w.want("ADDED a/s", "DELETED a/s")
		w.wantLists(0)
	})
}

func TestNodePortsFollowTheNodesPool(t *testing.T) {
	inBubbles(t, func(t *testing.T, mediaType string) {
		listens := map[string]string{topology.ListenAnnotation: "p2"}
		w := openWatch(t, mediaType, kubeProxy, servicesInfo("watch"), "allowWatchBookmarks=true&resourceVersion=100", func(w *watched) {
			w.annotate("a/s", topology.ListenAnnotation, "p2", 90)
		})
		w.answerLists(serviceList(200, annotatedService("s", corev1.ServiceTypeNodePort, 90, listens), annotatedService("other", corev1.ServiceTypeNodePort, 91, nil)))
		w.want()
		w.state.SetNode(map[string]string{topology.PoolLabel: "p2"}, "130")
		w.want("ADDED a/s", "bookmark 100")
		w.state.SetNode(map[string]string{topology.PoolLabel: "p3"}, "131")
		w.later()
		w.want("DELETED a/s", "bookmark 100")
		w.state.SetNode(map[string]string{topology.PoolLabel: "p4"}, "132")
		w.later()
		w.want()
		w.sends(watch.Modified, annotatedService("s", corev1.ServiceTypeNodePort, 140, nil))
		w.want("ADDED a/s", "bookmark 140")
	})
}

// Between a client's LIST and its WATCH, the filters may learn what the client has not read.
func TestAResumedWatchOfServicesKnowsNothingOfWhatHasChangedSince(t *testing.T) {
	listens := func(pools string, version int) *corev1.Service {
		return annotatedService("s", corev1.ServiceTypeNodePort, version, map[string]string{topology.ListenAnnotation: pools})
	}
	open := func(t *testing.T, mediaType string, listed *corev1.Service, setUp func(w *watched)) *watched {
		return openWatch(t, mediaType, kubeProxy, servicesInfo("watch"), "allowWatchBookmarks=true&resourceVersion=105", func(w *watched) {
			w.answerLists(serviceList(200, listed))
			setUp(w)
		})
	}
	inBubbles(t, func(t *testing.T, mediaType string) {
		w := open(t, mediaType, listens("p2", 110), func(w *watched) { w.annotate("a/s", topology.ListenAnnotation, "p2", 110) })
		w.want()
		w.sends(watch.Modified, listens("p2", 110))
		w.want("DELETED a/s", "bookmark 110")

		w = open(t, mediaType, listens("p1", 90), func(w *watched) {
			w.annotate("a/s", topology.ListenAnnotation, "p1", 90)
			w.state.SetNode(map[string]string{topology.PoolLabel: "p2"}, "110")
		})
		w.want("DELETED a/s", "bookmark 105")

		w = open(t, mediaType, listens("p2", 90), func(w *watched) {
			w.annotate("a/s", topology.ListenAnnotation, "p2", 90)
			w.state.SetNode(map[string]string{topology.PoolLabel: "p2"}, "110")
		})
		w.want("MODIFIED a/s", "bookmark 105") // which an informer takes for ADDED
	})
}

// A client of a hub that was started anew, with another set of filters perhaps, is told what it
// must not have.
func TestAClientOfAnEarlierHubLosesWhatItMustNotHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := openWatch(t, runtime.ContentTypeJSON, kubeProxy, servicesInfo("watch"), "resourceVersion=95", func(w *watched) {
			w.answerLists(serviceList(200,
				annotatedService("s", corev1.ServiceTypeNodePort, 90, map[string]string{topology.ListenAnnotation: "p2"}),
				annotatedService("on", corev1.ServiceTypeNodePort, 90, map[string]string{topology.ListenAnnotation: "p1"})))
			w.annotate("a/s", topology.ListenAnnotation, "p2", 90)
			w.annotate("a/on", topology.ListenAnnotation, "p1", 90)
		})
		w.want("DELETED a/s", "MODIFIED a/on")
	})
}

func TestAListThatFailsIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := openWatch(t, runtime.ContentTypeJSON, kubeProxy, slicesInfo("watch"), "resourceVersion=100", nil)
		failures := []func(*http.Request) *http.Response{
			func(r *http.Request) *http.Response {
				return &http.Response{Status: "503 Service Unavailable", StatusCode: http.StatusServiceUnavailable, Request: r, Header: http.Header{}, Body: http.NoBody}
			},
			answering(t, runtime.ContentTypeProtobuf, sliceList(200)),
			answeringBytes(runtime.ContentTypeJSON, []byte("{")),
			answering(t, runtime.ContentTypeJSON, sliceList(99, slice("a", "s", 80))), // of before the watch
		}
		w.mu.Lock()
		w.list = func(r *http.Request) *http.Response {
			if n := (len(w.lists) - 1) / 2; n < len(failures) { // of the few first, and then of all
				return failures[n](r)
			}
			return answering(t, runtime.ContentTypeJSON, sliceList(200, slice("a", "s", 80)))(r)
		}
		w.mu.Unlock()
		for range 100 {
			w.annotate("a/s", topology.KeysAnnotation, "", 110)
			w.annotate("a/s", topology.KeysAnnotation, nodeOnly, 110)
			synctest.Wait()
		}
		w.want()
		w.wantLists(2)                                    // of one attempt
		w.sends(watch.Modified, slice("a", "other", 111)) // the stream goes on meanwhile
		w.want("MODIFIED a/other-x" + wholeSlice)
		time.Sleep(time.Minute) //nolint:forbidigo // of synctest's clock
		w.want("MODIFIED a/s-x n1")
		w.wantLists(2*len(failures) + 1)
		if w.lists[1] != "" {
			t.Errorf("the second list is of %q", w.lists[1])
		}
	})
}

// The hub is asked before it knows anything: it answers after a while, and makes up for it.
func TestAWatchThatIsOpenedTooEarlyIsFilteredLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := openWatch(t, runtime.ContentTypeJSON, kubeProxy, slicesInfo("watch"), "resourceVersion=100", func(w *watched) {
			w.annotate("a/s", topology.KeysAnnotation, "openyurt.io/nodepool", 90)
			w.state.SetNode(map[string]string{topology.PoolLabel: "p7"}, "99") // whose members are not known
		})
		w.answerLists(sliceList(200, slice("a", "s", 80)))
		w.sends(watch.Modified, slice("a", "s", 101))
		w.want("MODIFIED a/s-x" + wholeSlice)
		w.answerLists(sliceList(200, slice("a", "s", 101)))
		w.state.SetMembers("p7", map[string]bool{"n1": true}, "120")
		w.want("MODIFIED a/s-x n1")
	})
}

func TestAWatchEndsWithItsStreamOrItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := openWatch(t, runtime.ContentTypeJSON, kubeProxy, slicesInfo("watch"), "", nil)
		w.sends(watch.Bookmark, bookmark("EndpointSlice", "120"))
		w.upstream.Close()
		w.want("bookmark 120")

		in, out := io.Pipe()
		defer out.Close()
		f := newFilters(t, runtime.ContentTypeJSON, func(r *http.Request) *http.Response {
			return &http.Response{StatusCode: http.StatusOK, Request: r, Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, Body: in}
		})
		body := f.send(kubeProxy, slicesInfo("watch"), "watch=true").Body
		ended := make(chan error)
		go func() {
			_, err := body.Read(make([]byte, 100))
			ended <- err
		}()
		synctest.Wait()
		for range 2 {
			body.Close()
		}
		if err := <-ended; err == nil {
			t.Error("the reader of a closed watch goes on")
		}
	})
}
