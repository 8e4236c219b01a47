package nodepods_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/ota/coreclient"
	"github.com/edgehub-io/edgehub/ota/nodepods"
)

// cloud answers lists with those that the test gives, and watches with the test's events. It has no initial events.
type cloud struct {
	lists   chan *corev1.PodList
	events  chan watch.Event // one of an error ends the watch by 410
	selects []string         // what was asked for
}

func (c *cloud) RoundTrip(r *http.Request) (*http.Response, error) {
	q := r.URL.Query()
	res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r}
	if !q.Has("watch") {
		c.selects = append(c.selects, q.Get("fieldSelector"))
		select {
		case list := <-c.lists:
			text, err := json.Marshal(list)
			res.Body = io.NopCloser(bytes.NewReader(text))
			return res, err
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	if q.Has("sendInitialEvents") {
		res.StatusCode, res.Body = http.StatusBadRequest, http.NoBody
		return res, nil
	}
	body, feed := io.Pipe()
	res.Body = body
	go func() {
		for {
			select {
			case e := <-c.events:
				if e.Type == watch.Error {
					_, _ = io.WriteString(feed, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410,"reason":"Expired"}}`)
					feed.Close()
					return
				}
				text, err := json.Marshal(map[string]any{"type": e.Type, "object": e.Object})
				if err == nil {
					_, err = feed.Write(text)
				}
				if err != nil {
					return
				}
			case <-r.Context().Done():
				feed.CloseWithError(r.Context().Err())
				return
			}
		}
	}()
	return res, nil
}

func list(version string, pods ...*corev1.Pod) *corev1.PodList {
	l := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: version}}
	for _, p := range pods {
		l.Items = append(l.Items, *p)
	}
	return l
}

func (c *cloud) sends(kind watch.EventType, p *corev1.Pod) {
	if p != nil {
		p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	}
	c.events <- watch.Event{Type: kind, Object: p}
	synctest.Wait()
}

// caller follows the pods, and remembers what it got.
type caller struct {
	events []string
	err    error
}

func (c *caller) follow(t *testing.T, pods *nodepods.Pods, query string, most int) func(context.Context) {
	t.Helper()
	q, err := nodepods.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context) {
		c.err = pods.Follow(ctx, &q, func() {}, func(e nodepods.Event) bool {
			if e.Object.Kind != "Pod" || e.Object.APIVersion != "v1" {
				t.Errorf("the object is a %s of %q", e.Object.Kind, e.Object.APIVersion)
			}
			c.events = append(c.events, fmt.Sprintf("%s %s %s@%s", e.Type, e.Object.Name, e.Object.UID, e.Object.ResourceVersion))
			return len(c.events) != most
		})
	}
}

// onNode calls f with the pods of a node that are being followed.
func onNode(t *testing.T, f func(ctx context.Context, c *cloud, pods *nodepods.Pods, all *sync.WaitGroup)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cloud{lists: make(chan *corev1.PodList), events: make(chan watch.Event)}
		client, err := coreclient.New(&rest.Config{Host: "http://hub", Transport: c})
		if err != nil {
			t.Fatal(err)
		}
		pods, err := nodepods.New(client, "n1")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		all.Go(func() { pods.Run(ctx, func([]*corev1.Pod) {}) })
		f(ctx, c, pods, &all)
	})
}

func TestFollow(t *testing.T) {
	onNode(t, func(ctx context.Context, c *cloud, pods *nodepods.Pods, all *sync.WaitGroup) {
		var some, late, one caller
		all.Go(func() { some.follow(t, pods, "labelSelector=app%3Dx&watch=true", 0)(ctx) })
		all.Go(func() { one.follow(t, pods, "watch=true", 1)(ctx) })
		synctest.Wait()
		some.got(t, "before there is a list")
		c.lists <- list("10", pod("a", "1", "5", "app=x"), pod("b", "2", "6"), pod("c", "3", "7", "app=x"), pod("g", "7", "8", "app=x"))
		time.Sleep(time.Second)
		synctest.Wait()
		some.got(t, "the pods that match", "ADDED a 1@5", "ADDED c 3@7", "ADDED g 7@8")

		reported := pod("a", "1", "11", "app=x")
		reported.Status.Phase = corev1.PodFailed
		c.sends(watch.Modified, pod("a", "1", "11", "app=x"))
		c.sends(watch.Modified, reported)
		some.got(t, "a change, and the node's own status while the cloud is away", "MODIFIED a 1@11", "MODIFIED a 1@11")
		c.sends(watch.Added, pod("d", "4", "12", "app=x"))
		c.sends(watch.Added, pod("f", "6", "13"))
		c.sends(watch.Modified, pod("b", "2", "14", "app=x"))
		c.sends(watch.Modified, pod("b", "2", "15"))
		c.sends(watch.Deleted, pod("f", "6", "16"))
		some.got(t, "others, of which one matches for a while", "ADDED d 4@12", "ADDED b 2@14", "DELETED b 2@15")

		for range 10 { // pods are kept in no order
			var again caller
			again.follow(t, pods, "watch=true", 5)(ctx)
			again.got(t, "all, in order", "ADDED a 1@11", "ADDED b 2@15", "ADDED c 3@7", "ADDED d 4@12", "ADDED g 7@8")
		}
		all.Go(func() { late.follow(t, pods, "fieldSelector=metadata.name%3Dd", 0)(ctx) })
		synctest.Wait()
		late.got(t, "a caller that comes later", "ADDED d 4@12")

		// The watch is answered 410. Meanwhile c is deleted, a is made anew, d is reported, and e comes; g stays as it was.
		c.sends(watch.Error, nil)
		d := pod("d", "4", "12", "app=x")
		d.Status.Phase = corev1.PodFailed
		c.lists <- list("30", pod("a", "9", "25", "app=x"), pod("b", "2", "15"), d, pod("e", "5", "28", "app=x"), pod("g", "7", "8", "app=x"))
		time.Sleep(time.Second)
		synctest.Wait()
		if i, j := slices.Index(some.events, "DELETED a 1@11"), slices.Index(some.events, "ADDED a 9@25"); i > j {
			t.Errorf("the new pod comes before the old one is gone: %q", some.events)
		}
		slices.Sort(some.events)
		some.got(t, "after another list", "ADDED a 9@25", "ADDED e 5@28", "DELETED a 1@11", "DELETED c 3@7", "MODIFIED d 4@12")
		c.sends(watch.Deleted, pod("d", "4", "31", "app=x"))
		some.got(t, "it goes on", "DELETED d 4@31")
		late.got(t, "for others, too", "MODIFIED d 4@12", "DELETED d 4@31")
		if len(one.events) != 1 || one.err != nil {
			t.Errorf("a caller that has left: got %q, %v", one.events, one.err)
		}
		if slices.ContainsFunc(c.selects, func(s string) bool { return s != "spec.nodeName=n1" }) {
			t.Errorf("it lists %q", c.selects)
		}
	})
}

// What waits for a caller that reads slowly is bounded, and no change is left out before others.
func TestACallerThatIsFarBehindIsLeft(t *testing.T) {
	for name, tt := range map[string]struct{ changes, most int }{
		"it catches up": {changes: 1000, most: 1001},
		"it is left":    {changes: 2000, most: 1},
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(ctx context.Context, c *cloud, pods *nodepods.Pods, all *sync.WaitGroup) {
				q, err := nodepods.ParseQuery("watch=true")
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				reads := make(chan struct{})
				var over atomic.Bool
				all.Go(func() {
					defer over.Store(true)
					if err := pods.Follow(ctx, &q, func() {}, func(e nodepods.Event) bool {
						got = append(got, e.Object.ResourceVersion)
						<-reads
						return true
					}); err != nil {
						t.Error(err)
					}
				})
				c.lists <- list("10", pod("a", "1", "10"))
				synctest.Wait()
				for i := range tt.changes {
					c.sends(watch.Modified, pod("a", "1", strconv.Itoa(11+i)))
				}
				close(reads)
				synctest.Wait()
				if want := tt.changes != len(got)-1; over.Load() != want {
					t.Errorf("after %d changes and %d lines it is over: %v", tt.changes, len(got), over.Load())
				}
				if len(got) != tt.most || got[len(got)-1] != strconv.Itoa(9+len(got)) {
					t.Errorf("it got %d lines, the last is %s", len(got), got[len(got)-1])
				}
			})
		})
	}
}

func TestACallerLeavesWhileTheHubStops(t *testing.T) {
	onNode(t, func(ctx context.Context, c *cloud, pods *nodepods.Pods, all *sync.WaitGroup) {
		q, err := nodepods.ParseQuery("watch=true")
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			if err := pods.Follow(context.WithoutCancel(ctx), &q, func() {}, func(nodepods.Event) bool {
				<-ctx.Done()
				time.Sleep(time.Second)
				return false
			}); err != nil {
				t.Error(err)
			}
		})
		c.lists <- list("10", pod("a", "1", "10"))
		synctest.Wait()
		c.sends(watch.Modified, pod("a", "1", "11"))
	}) // which waits for both
}

// got checks what the caller got since the last time.
func (c *caller) got(t *testing.T, what string, want ...string) {
	t.Helper()
	if !slices.Equal(c.events, want) {
		t.Errorf("%s: got %q, want %q", what, c.events, want)
	}
	c.events = nil
}

func TestNobodyFollowsWhatHasEnded(t *testing.T) {
	var after caller
	var pods *nodepods.Pods
	onNode(t, func(_ context.Context, c *cloud, p *nodepods.Pods, _ *sync.WaitGroup) {
		pods = p
		c.lists <- list("10")
	})
	after.follow(t, pods, "watch=true", 0)(t.Context())
	if after.err == nil || after.events != nil {
		t.Errorf("got %q, %v", after.events, after.err)
	}
}
