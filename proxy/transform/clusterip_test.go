package transform_test

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/edgehub-io/edgehub/proxy/topology"
)

var hubServers = []netip.AddrPort{netip.MustParseAddrPort("169.254.2.1:10268")} //nolint:gochecknoglobals // a constant

const (
	toCloud = "default/kubernetes 192.0.2.1:6443 192.0.2.2:6443"
	toHub   = "default/kubernetes 169.254.2.1:10268"
)

// apiServers is the slice of two apiservers.
func apiServers(version int) *discoveryv1.EndpointSlice {
	s := slice("default", "kubernetes", version)
	s.Name, s.Ports[0].Port = "kubernetes", new(int32(6443))
	s.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}, {Addresses: []string{"192.0.2.2"}}}
	return s
}

func TestTheAPIServersSlicesLeadToTheHub(t *testing.T) {
	sixes := apiServers(92)
	sixes.AddressType, sixes.Endpoints = discoveryv1.AddressTypeIPv6, []discoveryv1.Endpoint{{Addresses: []string{"fd00::1"}}}
	elsewhere := apiServers(93)
	elsewhere.Namespace = "a"
	all := sliceList(100, apiServers(90), slice("a", "s", 91), sixes, elsewhere)
	for name, tt := range map[string]struct {
		user string
		lead bool
		want string // of the first
	}{
		"to kube-proxy":                {kubeProxy, true, toHub},
		"not to another account":       {coreDNS, true, toCloud},
		"not while that is not wanted": {kubeProxy, false, toCloud},
	} {
		t.Run(name, func(t *testing.T) {
			for _, mediaType := range encodings {
				f := newFilters(t, mediaType, answering(t, mediaType, all))
				f.state.LeadAPIServer(tt.lead)
				got, _ := f.list(tt.user, slicesInfo("list"))
				want := []string{tt.want, "a/s-x" + wholeSlice, "default/kubernetes fd00::1:6443", "a/kubernetes 192.0.2.1:6443 192.0.2.2:6443"}
				wantItems(t, got, want...)
				info := slicesInfo("get")
				info.Namespace, info.Name = "default", "kubernetes"
				f.next = answering(t, mediaType, apiServers(90))
				got, _ = f.list(tt.user, info)
				wantItems(t, got, tt.want)
			}
		})
	}
}

func TestAWatchFollowsWhereTheAPIServersSliceLeads(t *testing.T) {
	inBubbles(t, func(t *testing.T, mediaType string) {
		w := openWatch(t, mediaType, kubeProxy, slicesInfo("watch"), watchList, nil)
		w.answerLists(sliceList(100, apiServers(90)))
		w.sends(watch.Added, apiServers(90))
		w.sends(watch.Bookmark, initialEventsEnd("EndpointSlice", "95"))
		w.want("ADDED "+toCloud, "bookmark 95")
		w.state.LeadAPIServer(true)
		w.want("MODIFIED "+toHub, "bookmark 95")
		w.state.LeadAPIServer(true)
		w.later()
		w.want() // it was not decided anew
		w.sends(watch.Modified, apiServers(96))
		w.want("MODIFIED "+toHub, "bookmark 96")
		w.answerLists(sliceList(100, apiServers(96)))
		w.state.LeadAPIServer(false)
		w.want("MODIFIED "+toCloud, "bookmark 96")
		for range 100 {
			w.state.LeadAPIServer(true)
			synctest.Wait()
			w.state.LeadAPIServer(false)
			synctest.Wait()
		}
		w.want("MODIFIED "+toHub, "bookmark 96", "MODIFIED "+toCloud, "bookmark 96")
		w.state.LeadAPIServer(true)
		w.want() // not at once: kube-proxy has enough to do
		w.later()
		w.want("MODIFIED "+toHub, "bookmark 96")
		w.wantLists(5)
		for i, version := range w.seen {
			if i > 1 && version != "95" && version != "96" && version == w.seen[i-2] {
				t.Errorf("an informer would ignore one of the versions %q", w.seen)
			}
		}
	})
}

// Whoever resumes a watch may have read the slice as an earlier process decided.
func TestAResumedWatchGetsTheAPIServersSliceAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		decide func(*topology.State)
		want   []string
	}{
		"nothing was ever decided": {func(*topology.State) {}, nil},
		"to the hub": {func(s *topology.State) {
			s.ExpectAPIServer()
			s.LeadAPIServer(true)
		}, []string{"MODIFIED " + toHub, "bookmark 105"}},
		"to the hub, for hours": {func(s *topology.State) {
			s.LeadAPIServer(true)
			time.Sleep(3 * time.Hour) //nolint:forbidigo // of synctest's clock
		}, []string{"MODIFIED " + toHub, "bookmark 105"}},
		"not to the hub": {func(s *topology.State) {
			s.ExpectAPIServer()
			s.LeadAPIServer(false)
		}, []string{"MODIFIED " + toCloud, "bookmark 105"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := openWatch(t, runtime.ContentTypeProtobuf, kubeProxy, slicesInfo("watch"), "allowWatchBookmarks=true&resourceVersion=105", func(w *watched) {
					w.answerLists(sliceList(200, apiServers(80), slice("a", "s", 81)))
					tt.decide(w.state)
				})
				w.want(tt.want...)
			})
		})
	}
}

// A hub that was restarted does not lead the cluster IP away and back before it knows.
func TestTheAPIServersSliceIsNotSentBeforeItIsDecided(t *testing.T) {
	t.Run("a client lists", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFilters(t, runtime.ContentTypeJSON, answering(t, runtime.ContentTypeJSON, sliceList(100, apiServers(90))))
			f.state.ExpectAPIServer()
			time.AfterFunc(time.Second, func() { f.state.LeadAPIServer(true) })
			got, _ := f.list(kubeProxy, slicesInfo("list"))
			wantItems(t, got, toHub)
		})
	})
	for name, after := range map[string]time.Duration{"a client waits": time.Second, "as long as it waits, and longer": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := openWatch(t, runtime.ContentTypeJSON, kubeProxy, slicesInfo("watch"), "resourceVersion=105", func(w *watched) {
					w.answerLists(sliceList(200, apiServers(80)))
					w.state.ExpectAPIServer()
					time.AfterFunc(after, func() { w.state.LeadAPIServer(true) })
				})
				time.Sleep(2 * time.Minute) //nolint:forbidigo // of synctest's clock
				w.want("MODIFIED " + toHub)
			})
		})
	}
}
