package feed_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/hub/feed"
	"github.com/edgehub-io/edgehub/ota/coreclient"
	"github.com/edgehub-io/edgehub/proxy/topology"
)

// cloud is an apiserver that answers watches with initial events, in JSON.
type cloud struct {
	mu      sync.Mutex
	refuses bool // to list nodes by label
	asked   []string
	nodes   []string // of the pool
	watches map[string]*io.PipeWriter
}

func (c *cloud) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	query := r.URL.Query()
	key := r.URL.Path + "?" + query.Get("fieldSelector") + query.Get("labelSelector")
	c.asked = append(c.asked, key)
	answer := func(code int, body io.ReadCloser) (*http.Response, error) {
		return &http.Response{StatusCode: code, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}, nil
	}
	byLabel := query.Get("labelSelector") != ""
	switch {
	case byLabel && c.refuses:
		return answer(http.StatusForbidden, io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)))
	case query.Get("watch") == "":
		return answer(http.StatusOK, io.NopCloser(strings.NewReader(`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"10"},"items":[]}`)))
	}
	in, out := io.Pipe()
	c.watches[key] = out
	initial := c.initialEvents(r.URL.Path, byLabel)
	go func() {
		for _, event := range initial {
			_, _ = out.Write(event)
		}
		<-r.Context().Done()
		out.Close()
	}()
	return answer(http.StatusOK, in)
}

func (c *cloud) initialEvents(path string, byLabel bool) (events [][]byte) {
	bookmark := metav1.ObjectMeta{ResourceVersion: "10", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
	if strings.HasSuffix(path, "/services") {
		events = append(events, eventOf(watch.Added, service("5", "openyurt.io/nodepool")))
		return append(events, eventOf(watch.Bookmark, &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: bookmark}))
	}
	if byLabel {
		for _, name := range c.nodes {
			events = append(events, eventOf(watch.Added, node(name, "6")))
		}
	} else {
		events = append(events, eventOf(watch.Added, node("n1", "6")))
	}
	end := node("", "10")
	end.ObjectMeta = bookmark
	return append(events, eventOf(watch.Bookmark, end))
}

func service(version, keys string) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "s", ResourceVersion: version, Annotations: map[string]string{topology.KeysAnnotation: keys}},
	}
}

func node(name, version string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
		ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version, Labels: map[string]string{topology.PoolLabel: "p1"}},
	}
}

func eventOf(event watch.EventType, o runtime.Object) []byte {
	raw, err := json.Marshal(o)
	if err == nil {
		raw, err = json.Marshal(metav1.WatchEvent{Type: string(event), Object: runtime.RawExtension{Raw: raw}})
	}
	if err != nil {
		panic(err)
	}
	return append(raw, '\n')
}

// sends has the cloud send an event in a watch.
func (c *cloud) sends(t *testing.T, key string, event watch.EventType, o runtime.Object) {
	t.Helper()
	c.mu.Lock()
	out := c.watches[key]
	c.mu.Unlock()
	if out == nil {
		t.Fatalf("there is no watch of %s", key)
	}
	if _, err := out.Write(eventOf(event, o)); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// newFeed runs a feed for the node n1 until the test ends.
func newFeed(t *testing.T, c *cloud) *topology.State {
	t.Helper()
	c.watches = map[string]*io.PipeWriter{}
	state := topology.New("n1", slog.New(slog.DiscardHandler))
	config := &rest.Config{Host: "http://hub", Transport: c, QPS: -1}
	core, err := coreclient.New(config)
	if err != nil {
		t.Fatal(err)
	}
	f, err := feed.New(state, "n1", config, core, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { f.Run(t.Context()) })
	t.Cleanup(running.Wait) // after the test's context has ended
	return state
}

const (
	servicesKey = "/api/v1/services?"
	ownKey      = "/api/v1/nodes?metadata.name=n1"
	poolKey     = "/api/v1/nodes?apps.openyurt.io/nodepool=p1"
)

// keeps reports whether an endpoint on a node remains of the Service a/s.
func keeps(s *topology.State, node string) bool {
	keep := s.Endpoints(types.NamespacedName{Namespace: "a", Name: "s"})
	return keep == nil || keep(node, "")
}

func TestNothingIsReadBeforeItIsWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cloud{}
		newFeed(t, c)
		time.Sleep(time.Hour) //nolint:forbidigo // of synctest's clock
		if len(c.asked) > 0 {
			t.Errorf("the cloud was asked for %q", c.asked)
		}
	})
}

func TestTheStateFollowsTheCloud(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cloud{nodes: []string{"n1", "n2"}}
		s := newFeed(t, c)
		if err := s.Await(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !keeps(s, "n2") || keeps(s, "n3") {
			t.Error("the members of the pool are not known")
		}
		c.sends(t, poolKey, watch.Added, node("n3", "11"))
		c.sends(t, poolKey, watch.Deleted, node("n2", "12"))
		if keeps(s, "n2") || !keeps(s, "n3") {
			t.Error("the members of the pool have changed")
		}
		c.sends(t, servicesKey, watch.Modified, service("13", "kubernetes.io/hostname"))
		if keeps(s, "n3") {
			t.Error("the Service has changed")
		}
		c.sends(t, servicesKey, watch.Modified, service("14", "openyurt.io/nodepool"))
		moved := node("n1", "15")
		moved.Labels = nil
		c.sends(t, ownKey, watch.Modified, moved)
		if keeps(s, "n2") || keeps(s, "n3") || !keeps(s, "n1") {
			t.Error("the node has left the pool")
		}
		c.sends(t, servicesKey, watch.Deleted, service("16", ""))
		if !keeps(s, "n3") {
			t.Error("the Service is gone")
		}
	})
}

func TestARightToListNodesIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cloud{nodes: []string{"n1"}, refuses: true}
		s := newFeed(t, c)
		if err := s.Await(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !keeps(s, "n2") || !s.Summary().PoolRefused {
			t.Errorf("nothing may be left out: %+v", s.Summary())
		}
		c.mu.Lock()
		c.refuses = false
		c.mu.Unlock()
		time.Sleep(2 * time.Minute) //nolint:forbidigo // of synctest's clock
		synctest.Wait()
		if keeps(s, "n2") || s.Summary().PoolRefused {
			t.Errorf("the members are not known: %+v", s.Summary())
		}
	})
}
