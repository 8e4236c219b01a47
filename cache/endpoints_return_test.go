package cache

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/cache/derived"
)

// kubelet reports at once what it sees that the cloud does not have, and the cloud's slices follow.
func TestEndpointsWhenTheCloudCatchesUp(t *testing.T) {
	for name, tt := range map[string]struct {
		offline *corev1.Pod // what kubelet reports in the outage
		want    []string    // what the watch gets after that
	}{
		"nothing has changed here": {nil, nil},
		"a pod has another address": {
			nodePod("a", "", "10.0.0.7", true), []string{"MODIFIED 10.0.0.7 10.0.9.9"},
		},
	} {
		bubble(t, name, func(t *testing.T) {
			p := startProxied(t, newSliceCloud(), withPodServers)
			p.lose()
			ip := "10.0.0.1"
			if tt.offline != nil {
				ip = tt.offline.Status.PodIP
				p.report(tt.offline)
			}
			// The cloud took the node for dead, and changed the other endpoint meanwhile.
			down := webSlice("200", webEndpoint("a", "10.0.0.1", false))
			down.Endpoints[1].Addresses = []string{"10.0.9.8"}
			p.cloud.set("210", down, otherSlice("91"), apiServerSlice("92"))
			p.cloud.comeBack()
			feed, pods := p.resumed()
			send(t, pods, podObjectEvent("MODIFIED", nodePod("a", "150", "10.0.0.1", false)))
			send(t, feed, sliceEvent("MODIFIED", down))
			synctest.Wait()
			time.Sleep(time.Second)
			p.cloud.pods = []*corev1.Pod{nodePod("a", "400", ip, true)}
			p.report(nodePod("a", "", ip, true)) // kubelet, online
			up := webSlice("300", webEndpoint("a", ip, true))
			send(t, feed, sliceEvent("MODIFIED", up))
			time.Sleep(2 * time.Minute)
			want := append(slices.Clone(tt.want), "MODIFIED "+ip+" 10.0.9.8", "MODIFIED "+ip+" 10.0.9.9")
			if got := watched(t, p.proxy, "web-1"); !slices.Equal(got, want) {
				t.Errorf("the watch gets %q, want %q", got, want)
			}
			if n := p.cloud.count("watch"); n > 6 {
				t.Errorf("watches were opened %d times", n)
			}
		})
	}
}

// Whatever the cloud says, or does not say, after the time for it clients have its slices.
func TestEndpointsWhenTheCloudDoesNotCatchUp(t *testing.T) {
	const settled = derived.SettleAfter
	down := webSlice("200", webEndpoint("a", "10.0.0.1", false))
	for name, tt := range map[string]struct {
		pod    *corev1.Pod // in kubelet's watch, after the return
		sent   string      // to kube-proxy's watch
		before []string
		after  []string
		within time.Duration
	}{
		"the pod was changed by the cloud":         {nodePod("a", "150", "10.0.0.1", false), "", nil, []string{"MODIFIED 10.0.0.1 10.0.9.9"}, settled},
		"the cloud took the node for dead":         {nodePod("a", "150", "10.0.0.1", false), sliceEvent("MODIFIED", down), []string{"MODIFIED 10.0.0.7 10.0.9.9"}, []string{"MODIFIED !10.0.0.1 10.0.9.9"}, settled},
		"the slice is gone":                        {nodePod("a", "150", "10.0.0.1", false), sliceEvent("DELETED", webSlice("200", webEndpoint("a", "10.0.0.1", false))), []string{"DELETED !10.0.0.1 10.0.9.9"}, nil, settled},
		"the endpoint is gone":                     {nodePod("a", "150", "10.0.0.1", false), sliceEvent("MODIFIED", webSlice("200")), []string{"MODIFIED 10.0.9.9"}, nil, settled},
		"a pod of the node that nobody here knows": {nodePod("a", "150", "10.0.0.1", false), sliceEvent("MODIFIED", webSlice("200", webEndpoint("new", "10.0.0.20", true))), []string{"MODIFIED 10.0.0.20 10.0.9.9"}, nil, settled},
		"nothing of the pod":                       {nil, "", nil, []string{"MODIFIED 10.0.0.1 10.0.9.9"}, settled},
	} {
		bubble(t, name, func(t *testing.T) {
			p := startProxied(t, newSliceCloud())
			p.lose()
			p.report(nodePod("a", "", "10.0.0.7", true))
			offline := []string{"MODIFIED 10.0.0.7 10.0.9.9"}
			p.cloud.comeBack()
			feed, pods := p.resumed()
			if tt.pod != nil {
				send(t, pods, podObjectEvent("MODIFIED", tt.pod))
			}
			send(t, feed, tt.sent)
			time.Sleep(tt.within - 2*time.Second)
			if got, want := watched(t, p.proxy, "web-1"), slices.Concat(offline, tt.before); !slices.Equal(got, want) {
				t.Errorf("until then the watch gets %q, want %q", got, want)
			}
			time.Sleep(10 * time.Second)
			if got, want := watched(t, p.proxy, "web-1"), slices.Concat(offline, tt.before, tt.after); !slices.Equal(got, want) {
				t.Errorf("in the end the watch gets %q, want %q", got, want)
			}
			if p.proxy.ended() {
				t.Error("the watch has ended")
			}
			select {
			case feed = <-p.cloud.sliceFeeds: // opened again to show what the cloud has
			default:
			}
			send(t, feed, sliceEvent("MODIFIED", webSlice("300", webEndpoint("a", "10.0.0.30", false))))
			synctest.Wait()
			if got, want := watched(t, p.proxy, "web-1"), "MODIFIED !10.0.0.30 10.0.9.9"; got[len(got)-1] != want {
				t.Errorf("later the watch gets %q, want %q", got, want)
			}
		})
	}
}

// While the cloud catches up, kubelet reports to it: its slices follow.
func TestEndpointsFollowKubeletAfterTheReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startProxied(t, newSliceCloud())
		p.lose()
		p.cloud.comeBack()
		feed, _ := p.resumed()
		p.report(nodePod("a", "", "10.0.0.1", false))
		send(t, feed, sliceEvent("MODIFIED", webSlice("200", webEndpoint("a", "10.0.0.1", false))))
		synctest.Wait()
		if got, want := watched(t, p.proxy, "web-1"), []string{"MODIFIED !10.0.0.1 10.0.9.9"}; !slices.Equal(got, want) {
			t.Errorf("the watch gets %q, want %q", got, want)
		}
	})
}

// The cloud comes and goes: no address that works is withdrawn.
func TestEndpointsOverShortReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startProxied(t, newSliceCloud())
		p.lose()
		p.report(nodePod("a", "", "10.0.0.7", true))
		for n := range 4 {
			p.cloud.set(fmt.Sprint(200+n), p.cloud.slices...)
			p.cloud.comeBack()
			feed, pods := p.resumed()
			send(t, pods, podObjectEvent("MODIFIED", nodePod("a", fmt.Sprint(150+n), "10.0.0.1", false)))
			send(t, feed, sliceEvent("MODIFIED", webSlice(fmt.Sprint(200+n), webEndpoint("a", "10.0.0.1", false))))
			synctest.Wait()
			p.cloud.sliceFeeds <- feed
			p.cloud.podFeeds <- pods
			time.Sleep(3 * time.Second)
			p.lose()
		}
		// Once in the first outage, and for each event of the cloud.
		if got, want := watched(t, p.proxy, "web-1"), slices.Repeat([]string{"MODIFIED 10.0.0.7 10.0.9.9"}, 5); !slices.Equal(got, want) {
			t.Errorf("the watch gets %q, want %q", got, want)
		}
		if got := p.read(urlProxySlices, protobuf); shownSlice(got) != "10.0.0.7 10.0.9.9" {
			t.Errorf("the list has %q", shownSlice(got))
		}
	})
}

// A client lists in the outage, and opens its watch after it.
func TestAWatchOpenedAfterTheReturnGetsTheCloudsEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startProxied(t, newSliceCloud(), withPodServers)
		p.lose()
		p.report(nodePod("a", "", "10.0.0.7", true))
		p.read(urlProxySlices, "application/json")
		p.proxy.stop()
		p.cloud.comeBack()
		pods := p.opened(p.cloud.podFeeds)
		send(t, pods, podObjectEvent("MODIFIED", nodePod("a", "150", "10.0.0.1", false)))
		w := startWatch(as(t.Context(), kubeProxy), t, p.Cache, watchSlices+"&resourceVersion=100")
		time.Sleep(5 * time.Second)
		if got, want := watched(t, w, "kubernetes"), []string{"MODIFIED 192.0.2.1:6443"}; !slices.Equal(got, want) {
			t.Errorf("at once the watch gets %q, want %q", got, want)
		}
		if got := watched(t, w, "web-1"); len(got) != 0 {
			t.Errorf("at once the watch gets %q", got)
		}
		time.Sleep(20 * time.Second)
		if got, want := watched(t, w, "web-1"), []string{"MODIFIED 10.0.0.1 10.0.9.9"}; !slices.Equal(got, want) {
			t.Errorf("then the watch gets %q, want %q", got, want)
		}
	})
}

// A client whose watch cannot go on reads everything again, by WatchList.
func TestInitialEventsWhileTheCloudCatchesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startProxied(t, newSliceCloud())
		p.lose()
		p.cloud.comeBack()
		p.opened(p.cloud.sliceFeeds)
		w := startWatch(as(t.Context(), kubeProxy), t, p.Cache, watchSlices+listWatch)
		feed := p.opened(p.cloud.sliceFeeds)
		send(t, feed, sliceEvent("ADDED", webSlice("200", webEndpoint("a", "10.0.0.1", false))),
			`{"type":"BOOKMARK","object":{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{"resourceVersion":"210","annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n")
		time.Sleep(5 * time.Second)
		want := []string{"ADDED 10.0.0.1 10.0.9.9"}
		if got := watched(t, w, "web-1"); !slices.Equal(got, want) {
			t.Errorf("initial events are %q, want %q", got, want)
		}
		time.Sleep(20 * time.Second)
		if got, want := watched(t, w, "web-1"), append(want, "MODIFIED !10.0.0.1 10.0.9.9"); !slices.Equal(got, want) {
			t.Errorf("then the watch gets %q, want %q", got, want)
		}
		for _, v := range p.views.All() { // it has the cloud's slices
			if v.Key.Labels != "" && v.Position() != "210" {
				t.Errorf("%s is at %s", v, v.Position())
			}
		}
	})
}

// A hub that was killed in the outage, and started after it, does not know what clients were shown.
func TestSlicesOfAnOutageAreTakenBackByTheNextProcess(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*sliceCloud)
		from   string
		away   time.Duration // for how long after the start
		want   map[string][]string
	}{
		"as they were": {func(*sliceCloud) {}, "100", 0, map[string][]string{
			"kubernetes": {"MODIFIED 192.0.2.1:6443"}, "web-1": {"MODIFIED 10.0.0.1 10.0.9.9"}, "other-1": nil,
		}},
		"to a client that has listed since": {func(c *sliceCloud) { c.set("200", c.slices...) }, "200", 0, map[string][]string{
			"kubernetes": nil, "web-1": nil, "other-1": nil,
		}},
		// It shows that itself, and takes it back.
		"as they were, some time after the start": {func(*sliceCloud) {}, "100", 10 * time.Minute, map[string][]string{
			"kubernetes": {"MODIFIED 169.254.2.1:10268", "MODIFIED 192.0.2.1:6443"}, "web-1": {"MODIFIED 10.0.0.1 10.0.9.9"}, "other-1": nil,
		}},
	} {
		bubble(t, name, func(t *testing.T) {
			cloud := newSliceCloud()
			p := startStopped(t, cloud)
			if tt.away == 0 {
				cloud.comeBack()
			}
			tt.change(cloud)
			p.start()
			if tt.away > 0 { // the pod is as the cloud knows it again, so nothing is shown of it
				synctest.Wait()
				p.report(nodePod("a", "", "10.0.0.1", true))
			}
			if tt.from != "100" {
				p.read(urlProxySlices, "application/json")
				get(t, p.Cache, urlNodePods)
			}
			w := startWatch(as(t.Context(), kubeProxy), t, p.Cache, watchSlices+"&resourceVersion="+tt.from)
			pods := startWatch(t.Context(), t, p.Cache, urlNodePods+"&watch=true&allowWatchBookmarks=true&resourceVersion=100")
			if tt.away > 0 {
				time.Sleep(tt.away)
				cloud.comeBack()
			}
			time.Sleep(2 * time.Minute)
			pods.mu.Lock()
			if got := pods.body.String(); !strings.Contains(got, "MODIFIED") || !strings.Contains(got, "10.0.0.1") || strings.Contains(got, "10.0.0.7") {
				t.Errorf("the watch of pods gets %s", got)
			}
			pods.mu.Unlock()
			for slice, want := range tt.want {
				if got := watched(t, w, slice); !slices.Equal(got, want) {
					t.Errorf("of %s the watch gets %q, want %q", slice, got, want)
				}
			}
		})
	}
}

// A hub with --cluster-ip=always has had kube-proxy read a slice that leads to the hub, and then a bookmark. The
// next process, without the flag, takes it back. An apiserver does where the client resumes from the slice.
func TestASliceThatLedToTheHubOnlineIsTakenBackByTheNextProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startProxied(t, newSliceCloud(), withPodServers)
		time.Sleep(10 * time.Second)
		p.end()
		p.start()
		w := startWatch(as(t.Context(), kubeProxy), t, p.Cache, watchSlices+"&resourceVersion=100")
		time.Sleep(2 * time.Minute)
		if got, want := watched(t, w, "kubernetes"), []string{"MODIFIED 192.0.2.1:6443"}; !slices.Equal(got, want) {
			t.Errorf("the watch gets %q, want %q", got, want)
		}
	})
}

// What clients had when the cloud was lost is on disk before they are shown anything else: whenever the
// hub is killed then, the next process takes it back.
func TestSlicesOfAnOutageAreTakenBackAfterAKillAtItsStart(t *testing.T) {
	for name, tt := range map[string]struct {
		since time.Duration // for how long clients had read
		event bool          // moves the watch on, right before the loss
		from  string
	}{
		"that were read right before it":    {0, false, "100"},
		"that have changed right before it": {10 * time.Second, true, "150"},
	} {
		bubble(t, name, func(t *testing.T) {
			cloud := newSliceCloud()
			p := startProxied(t, cloud, withPodServers)
			time.Sleep(tt.since)
			if tt.event {
				feed, _ := p.resumed()
				other := otherSlice("150")
				send(t, feed, sliceEvent("MODIFIED", other))
				synctest.Wait()
				cloud.set("150", webSlice("90", webEndpoint("a", "10.0.0.1", true)), other, apiServerSlice("92"))
				feed.CloseWithError(io.ErrUnexpectedEOF)
			}
			p.lose()
			time.Sleep(200 * time.Millisecond)
			killed := t.TempDir()
			if err := os.CopyFS(killed, os.DirFS(p.dir)); err != nil {
				t.Fatal(err)
			}
			if got := watched(t, p.proxy, "kubernetes"); !slices.Contains(got, "MODIFIED 169.254.2.1:10268") {
				t.Errorf("in the outage the watch gets %q", got)
			}
			p.end()
			p.dir = killed
			cloud.comeBack()
			p.start()
			w := startWatch(as(t.Context(), kubeProxy), t, p.Cache, watchSlices+"&resourceVersion="+tt.from)
			time.Sleep(2 * time.Minute)
			if got, want := watched(t, w, "kubernetes"), []string{"MODIFIED 192.0.2.1:6443"}; !slices.Equal(got, want) {
				t.Errorf("after the return the watch gets %q, want %q", got, want)
			}
		})
	}
}
