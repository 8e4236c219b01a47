package transform_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/edgehub-io/edgehub/cache/wire"
	"github.com/edgehub-io/edgehub/proxy/transform"
)

// podImages has kubelet read app:v2 in place of app:v1, of the pods that it knows.
type podImages struct {
	mu         sync.Mutex
	upgraded   map[types.UID]bool // false: it was undone
	generation uint64
	at         map[types.UID]uint64
	changed    chan struct{}
}

func newPodImages() *podImages {
	return &podImages{upgraded: map[types.UID]bool{}, at: map[types.UID]uint64{}, changed: make(chan struct{}), generation: 1}
}

func (p *podImages) set(pod types.UID, upgraded bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.generation++
	p.upgraded[pod], p.at[pod] = upgraded, p.generation
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *podImages) Idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.upgraded) == 0
}

func (p *podImages) Knows(pod types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.upgraded[pod]
	return ok
}

func (p *podImages) Images(pod types.UID, version string, have map[string]string) map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.upgraded[pod] || version == "" || !maps.Equal(have, map[string]string{"app": "app:v1", "side": "side:v1"}) {
		return nil
	}
	return map[string]string{"app": "app:v2"}
}

func (p *podImages) Changes(since uint64) (map[types.UID]types.NamespacedName, uint64, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pods := map[types.UID]types.NamespacedName{}
	for uid, at := range p.at {
		if at > since {
			pods[uid] = types.NamespacedName{Namespace: "ns", Name: string(uid)}
		}
	}
	return pods, p.generation, p.changed
}

// appPod has the UID that is its name.
func appPod(name, version, image string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: version, Labels: map[string]string{"image": "app:v1"}},
		Spec: corev1.PodSpec{
			Containers:     []corev1.Container{{Name: "app", Image: image, Args: []string{"app:v1"}}, {Name: "side", Image: "side:v1"}},
			InitContainers: []corev1.Container{{Name: "app", Image: image}},
		},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "app", Image: image}}},
	}
}

// kubeletRig is kubelet's watch through the transform, and the apiserver, or cache, behind it.
type kubeletRig struct {
	t         *testing.T
	mediaType string
	images    *podImages
	transport *transform.Transport
	userAgent string
	isNode    bool

	mu     sync.Mutex
	pods   map[string]*corev1.Pod // that are got, by name
	fails  bool                   // GETs do
	hangs  bool                   // GETs do, until their client has had enough
	gets   []string
	events []string
	answer runtime.Object // to other requests
	stream *io.PipeReader // of watches
}

func newKubeletRig(t *testing.T, mediaType string) *kubeletRig {
	k := &kubeletRig{t: t, mediaType: mediaType, images: newPodImages(), userAgent: kubelet, isNode: true, pods: map[string]*corev1.Pod{}}
	k.transport = transform.New(errTripper(k.serve), transform.Options{
		IsNode:     func(context.Context) bool { return k.isNode },
		Transforms: append(transforms(), transform.NewPodImages(k.images)), Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	})
	return k
}

type errTripper func(*http.Request) (*http.Response, error)

func (f errTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (k *kubeletRig) serve(r *http.Request) (*http.Response, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	info, _ := request.RequestInfoFrom(r.Context())
	res := &http.Response{StatusCode: http.StatusOK, Status: "200 OK", Request: r, Header: http.Header{"Content-Type": {k.mediaType}}, ContentLength: -1}
	switch {
	case info.Verb == "watch":
		res.Header.Set("Content-Type", k.mediaType+";stream=watch")
		res.Body = k.stream
		return res, nil
	case k.answer != nil:
		res.Body = io.NopCloser(bytes.NewReader(encode(k.t, k.mediaType, k.answer)))
		return res, nil
	}
	k.gets = append(k.gets, r.URL.String()+" "+info.Namespace+"/"+info.Name+" "+r.Header.Get("Authorization"))
	switch pod := k.pods[info.Name]; {
	case k.fails:
		return nil, errors.New("the disk is broken")
	case k.hangs:
		k.mu.Unlock()
		<-r.Context().Done()
		k.mu.Lock()
		return nil, r.Context().Err()
	case pod == nil:
		res.StatusCode, res.Status, res.Body = http.StatusNotFound, "404 Not Found", http.NoBody
	default:
		res.Body = io.NopCloser(bytes.NewReader(encode(k.t, k.mediaType, pod)))
	}
	return res, nil
}

func (k *kubeletRig) set(pods ...*corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, pod := range pods {
		k.pods[pod.Name] = pod
	}
}

func (k *kubeletRig) send(verb, query string) *http.Response {
	k.t.Helper()
	return k.sendTo(verb, "", "fieldSelector=spec.nodeName%3Dn&"+query)
}

func (k *kubeletRig) sendTo(verb, namespace, query string) *http.Response {
	k.t.Helper()
	info := request.RequestInfo{IsResourceRequest: true, APIVersion: "v1", Verb: verb, Resource: "pods", Namespace: namespace}
	r, err := http.NewRequestWithContext(request.WithRequestInfo(k.t.Context(), &info), http.MethodGet, "http://apiserver/api/v1/pods?"+query, http.NoBody)
	if err != nil {
		k.t.Fatal(err)
	}
	r.Header.Set("User-Agent", k.userAgent)
	r.Header.Set("Authorization", "Bearer kubelet")
	res, err := k.transport.RoundTrip(r)
	if err != nil {
		k.t.Fatal(err)
	}
	return res
}

// watch opens a watch of the node's pods, and returns what sends events to it.
func (k *kubeletRig) watch(query string) func(watch.EventType, runtime.Object) {
	k.t.Helper()
	return k.watchOf("", "fieldSelector=spec.nodeName%3Dn&"+query)
}

func (k *kubeletRig) watchOf(namespace, query string) func(watch.EventType, runtime.Object) {
	k.t.Helper()
	in, out := io.Pipe()
	k.mu.Lock()
	k.stream, k.events = in, nil
	k.mu.Unlock()
	res := k.sendTo("watch", namespace, "watch=true&"+query)
	k.t.Cleanup(func() { res.Body.Close(); out.Close() })
	go k.read(res.Body)
	return func(event watch.EventType, o runtime.Object) {
		k.t.Helper()
		if _, err := out.Write(encodeEvent(k.t, k.mediaType, event, o)); err != nil {
			k.t.Error(err)
		}
	}
}

func (k *kubeletRig) read(body io.Reader) {
	frames, err := wire.NewFrameReader(body, wire.ParseContentType(k.mediaType).Encoding)
	if err != nil {
		k.t.Error(err)
		return
	}
	for {
		f, err := frames.Next()
		if err != nil {
			return
		}
		text := string(f.Type) + " " + string(f.Meta.ResourceVersion)
		if pod, ok := decode(k.t, k.mediaType, f.Object).(*corev1.Pod); ok && f.Type != watch.Bookmark {
			text += " " + pod.Name + " " + pod.Spec.Containers[0].Image
		}
		k.mu.Lock()
		k.events = append(k.events, text)
		k.mu.Unlock()
	}
}

// want waits for what comes, and checks the events since the last call.
func (k *kubeletRig) want(events ...string) {
	k.t.Helper()
	synctest.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	if strings.Join(k.events, "; ") != strings.Join(events, "; ") {
		k.t.Errorf("got\n%q, want\n%q", k.events, events)
	}
	k.events = nil
}

func TestKubeletReadsTheImagesOfAnUpgradeInPlace(t *testing.T) {
	for _, mediaType := range encodings {
		for name, tt := range map[string]struct {
			userAgent string
			isNode    bool
			verb      string
			image     string
			upgraded  bool
			want      string
		}{
			"a GET by kubelet":               {kubelet, true, "get", "app:v1", true, "app:v2"},
			"a LIST by kubelet":              {kubelet, true, "list", "app:v1", true, "app:v2"},
			"a LIST by an old kubelet":       {"kubelet/v1.28.0 (linux/amd64) kubernetes/9edcffc", true, "list", "app:v1", true, "app:v2"},
			"k3s":                            {"k3s/v1.34.1+k3s1 (linux/amd64) k3s/9edcffc", true, "list", "app:v1", true, "app:v2"},
			"the hub itself":                 {"edgehub/v1", true, "list", "app:v1", true, "app:v1"},
			"kubectl with the node's rights": {"kubectl/v1.34.0", true, "get", "app:v1", true, "app:v1"},
			"another user's kubelet":         {kubelet, false, "list", "app:v1", true, "app:v1"},
			"other images":                   {kubelet, true, "list", "app:hand", true, "app:hand"},
			"undone":                         {kubelet, true, "list", "app:v1", false, "app:v1"},
		} {
			t.Run(name+", "+mediaType, func(t *testing.T) {
				k := newKubeletRig(t, mediaType)
				k.userAgent, k.isNode = tt.userAgent, tt.isNode
				k.images.set("p", tt.upgraded)
				p, other := appPod("p", "9", tt.image), appPod("other", "8", "app:v1")
				k.answer = p
				if tt.verb == "list" {
					list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: "9"}, Items: []corev1.Pod{*other, *p}}
					for i := range list.Items {
						list.Items[i].TypeMeta = metav1.TypeMeta{}
					}
					k.answer = list
				}
				want := k.answer.DeepCopyObject()
				read := func(o runtime.Object) *corev1.Pod {
					if list, ok := o.(*corev1.PodList); ok {
						return &list.Items[1]
					}
					return o.(*corev1.Pod)
				}
				read(want).Spec.Containers[0].Image = tt.want
				res := k.send(tt.verb, "")
				defer res.Body.Close()
				got := decode(t, mediaType, readAll(t, res))
				if !bytes.Equal(encode(t, mediaType, got), encode(t, mediaType, want)) {
					t.Errorf("got\n%+v, want\n%+v", got, want)
				}
			})
		}
	}
}

func TestAPodThatCannotBeReadIsAnErrorForKubelet(t *testing.T) {
	k := newKubeletRig(t, runtime.ContentTypeJSON)
	k.images.set("p", true)
	k.transport = transform.New(roundTripper(func(r *http.Request) *http.Response {
		body := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","uid":"p","resourceVersion":"9"},"spec":{"containers":{"name":"app"}}}`
		return &http.Response{StatusCode: http.StatusOK, Request: r, Header: http.Header{"Content-Type": {k.mediaType}}, Body: io.NopCloser(strings.NewReader(body))}
	}), transform.Options{
		IsNode:     func(context.Context) bool { return true },
		Transforms: []transform.Transform{transform.NewPodImages(k.images)}, Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	})
	res := k.send("get", "")
	defer res.Body.Close()
	if res.StatusCode != http.StatusInternalServerError {
		t.Errorf("%d: %s", res.StatusCode, readAll(t, res))
	}
}

const bookmarks = "allowWatchBookmarks=true&resourceVersion=10"

func TestAnOpenWatchFollowsAnUpgradeInPlace(t *testing.T) {
	inBubbles(t, func(t *testing.T, mediaType string) {
		k := newKubeletRig(t, mediaType)
		k.set(appPod("p", "8", "app:v1"))
		sends := k.watch(bookmarks)
		sends(watch.Modified, appPod("p", "11", "app:v1"))
		k.set(appPod("p", "11", "app:v1"))
		k.want("MODIFIED 11 p app:v1")
		k.images.set("p", true)
		k.want("MODIFIED 11 p app:v2", "BOOKMARK 11")
		sends(watch.Modified, appPod("other", "12", "app:v1"))
		sends(watch.Modified, appPod("p", "13", "app:v1")) // the cloud has something else to say of it
		k.want("MODIFIED 12 other app:v1", "MODIFIED 13 p app:v2")
		k.set(appPod("p", "13", "app:v1"))
		k.images.set("p", false)
		k.want("MODIFIED 13 p app:v1", "BOOKMARK 13")
		sends(watch.Deleted, appPod("p", "14", "app:v1"))
		k.want("DELETED 14 p app:v1")
		if want := "http://apiserver/api/v1/namespaces/ns/pods/p ns/p Bearer kubelet"; len(k.gets) != 2 || k.gets[0] != want {
			t.Errorf("read %q", k.gets)
		}
	})
}

// A hub may die after it has written down what kubelet is to read, and before kubelet has read it, whose watch resumes.
func TestEachWatchBeginsWithWhatIsToBeShown(t *testing.T) {
	inBubbles(t, func(t *testing.T, mediaType string) {
		k := newKubeletRig(t, mediaType)
		k.set(appPod("p", "8", "app:v1"), appPod("q", "9", "app:v1"))
		k.images.set("p", true)
		k.watch(bookmarks)
		k.want("MODIFIED 8 p app:v2", "BOOKMARK 10")
		k.images.set("p", false)
		k.want("MODIFIED 8 p app:v1", "BOOKMARK 10")
		k.watch(bookmarks)
		k.want("MODIFIED 8 p app:v1", "BOOKMARK 10") // what was undone, as well
	})
}

func TestInitialEventsAreTransformedAndNothingComesBetweenThem(t *testing.T) {
	inBubbles(t, func(t *testing.T, mediaType string) {
		k := newKubeletRig(t, mediaType)
		k.set(appPod("p", "8", "app:v1"), appPod("q", "9", "app:v1"))
		k.images.set("p", true)
		sends := k.watch("allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
		k.want()
		sends(watch.Added, appPod("p", "8", "app:v1"))
		k.want("ADDED 8 p app:v2")
		sends(watch.Added, appPod("q", "9", "app:v1"))
		k.want("ADDED 9 q app:v1")
		k.images.set("q", true)
		k.want()
		end := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{ResourceVersion: "10", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
		sends(watch.Bookmark, end)
		k.want("BOOKMARK 10", "MODIFIED 9 q app:v2", "BOOKMARK 10")
	})
}

func TestAWatchWithoutAVersionBeginsWithAllPodsByItself(t *testing.T) {
	inBubbles(t, func(t *testing.T, mediaType string) {
		k := newKubeletRig(t, mediaType)
		k.set(appPod("p", "8", "app:v1"))
		k.images.set("p", true)
		sends := k.watch("resourceVersion=0")
		sends(watch.Added, appPod("p", "8", "app:v1"))
		k.want("ADDED 8 p app:v2")
	})
}

func TestAPodThatIsNewerThanTheWatchIsLeftToIt(t *testing.T) {
	inBubbles(t, func(t *testing.T, mediaType string) {
		k := newKubeletRig(t, mediaType)
		k.set(appPod("p", "12", "app:v1"))
		sends := k.watch(bookmarks)
		k.images.set("p", true)
		k.want()
		sends(watch.Modified, appPod("p", "12", "app:v1"))
		k.want("MODIFIED 12 p app:v2")
		time.Sleep(time.Minute) //nolint:forbidigo // of synctest's clock
		k.want()
	})
}
