package cache

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/features"
	clientfeatures "k8s.io/client-go/features/testing"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// TestInformersSurviveCuts runs client-go informers, with and without the watch-list
// protocol, through a link that is cut at random while objects come, change and go, and
// holds what they know against the apiserver after each cut. SEED repeats a run.
func TestInformersSurviveCuts(t *testing.T) {
	t.Parallel()
	const cuts = 50
	seed := seedOf(t)
	random := rand.New(rand.NewPCG(seed, 0))
	h, s := newHub(t), newSpace(t)
	s.fill("c", 20)
	all := []*informer{newInformer(t, h, s, true, protobuf), newInformer(t, h, s, false, protobuf), newInformer(t, h, s, true, asJSON)}
	for _, i := range all {
		i.awaitEqual(t, s)
		i.lists.Store(0)
	}
	mark := env.audit.mark(t)
	began, before := time.Now(), h.takeStock()
	for n := range cuts {
		for range random.IntN(4) { // some just before, whose events may be cut off
			s.anything(random)
		}
		cut := randomCut(random)
		cut.make(h)
		for range random.IntN(12) {
			s.anything(random)
		}
		<-time.After(cut.length)
		if err := h.link.Up(); err != nil {
			t.Fatal(err)
		}
		for range random.IntN(3) {
			s.anything(random)
		}
		for _, i := range all {
			i.awaitEqual(t, s)
		}
		if t.Failed() {
			t.Fatalf("after cut %d: %v", n, cut)
		}
	}
	t.Logf("%d cuts took %v", cuts, time.Since(began).Round(time.Second))
	lists := 0
	for _, i := range all {
		n := int(i.lists.Load())
		lists += n
		if n != 0 {
			t.Errorf("informer %s began anew %d times in %d cuts", i.name, n, cuts)
		}
	}
	reads := 0
	byQuery, checks := wholeReads(env.audit.since(t, mark, h.user))
	for _, n := range byQuery {
		reads += n
	}
	t.Logf("informers began anew %d times; the apiserver was read as a whole %d times, and asked for its version %d times", lists, reads, checks)
	if reads != 0 {
		t.Errorf("the apiserver was read as a whole %d times, though it forgot nothing", reads)
	}
	h.awaitStock(before)
}

func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("SEED=%d", seed)
	return seed
}

// linkCut is one way to lose the cloud for a while.
type linkCut struct {
	name   string
	make   func(*hub)
	length time.Duration
}

func (c linkCut) String() string { return fmt.Sprintf("%s for %v", c.name, c.length) }

func randomCut(random *rand.Rand) linkCut {
	short := time.Duration(random.IntN(1200)) * time.Millisecond
	long := 2*time.Second + time.Duration(random.IntN(3000))*time.Millisecond
	return []linkCut{
		{"refused and reset", (*hub).cut, short},
		{"reset", func(h *hub) { h.link.Reset() }, 0},
		{"a broken stream", func(h *hub) { h.link.ResetAfter(int64(random.IntN(2000))) }, short},
		{"a short black hole", (*hub).blackHole, short},
		{"a black hole", (*hub).blackHole, long},
		{"a black hole that ends in a reset", func(h *hub) { h.blackHole(); h.link.Reset() }, short},
	}[random.IntN(6)]
}

// anything makes a change at the apiserver.
func (s *space) anything(random *rand.Rand) {
	s.t.Helper()
	name := fmt.Sprintf("c-%03d", random.IntN(40))
	ctx := s.t.Context()
	_, err := s.maps.Get(ctx, name, metav1.GetOptions{})
	switch {
	case err != nil:
		_, err = s.maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	case random.IntN(3) == 0:
		err = s.maps.Delete(ctx, name, metav1.DeleteOptions{})
	default:
		_, err = s.patch(ctx, name, strconv.Itoa(random.Int()))
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// informer is a client-go informer over the ConfigMaps of a space.
type informer struct {
	name  string
	known toolscache.SharedIndexInformer
	lists atomic.Int64 // LISTs, and watches that begin with all there is
}

func newInformer(t *testing.T, h *hub, s *space, watchList bool, contentType string) *informer {
	t.Helper()
	i := &informer{name: fmt.Sprintf("watch-list %v, %s", watchList, contentType)}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	config := &rest.Config{Host: h.node.url, QPS: -1, Transport: i.counting(transport), ContentConfig: rest.ContentConfig{ContentType: contentType, AcceptContentTypes: contentType}}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(s.name))
	i.known = factory.Core().V1().ConfigMaps().Informer()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	// The informer looks at the feature once, when it begins.
	t.Run("start "+i.name, func(t *testing.T) {
		clientfeatures.SetFeatureDuringTest(t, features.WatchListClient, watchList)
		factory.Start(ctx.Done())
		if !toolscache.WaitForCacheSync(t.Context().Done(), i.known.HasSynced) {
			t.Fatal("the informer does not sync")
		}
	})
	return i
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (i *informer) counting(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		q := r.URL.Query()
		if q.Get("watch") == "" && q.Get("continue") == "" || q.Get("sendInitialEvents") == "true" {
			i.lists.Add(1)
		}
		return next.RoundTrip(r)
	})
}

// awaitEqual waits until the informer has what the apiserver has, object by object and
// version by version.
func (i *informer) awaitEqual(t *testing.T, s *space) {
	t.Helper()
	reason := ""
	defer func() {
		if reason != "" {
			t.Logf("informer %s: %s", i.name, reason)
		}
	}()
	poll.Until(t, patience, "the informer "+i.name+" has what the apiserver has", func() bool {
		list, err := s.maps.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want, got := map[string]string{}, map[string]string{}
		for k := range list.Items {
			want[list.Items[k].Name] = list.Items[k].ResourceVersion
		}
		for _, object := range i.known.GetStore().List() {
			m, err := meta.Accessor(object)
			if err != nil {
				t.Fatal(err)
			}
			got[m.GetName()] = m.GetResourceVersion()
		}
		if maps.Equal(want, got) {
			reason = ""
			return true
		}
		reason = differences(got, want)
		return false
	})
}
