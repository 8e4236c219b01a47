package cache

import (
	"bytes"
	"fmt"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/edgehub-io/edgehub/cache/view"
)

// TestEndpointsFollowTheNodesPods checks the slice in every form that a client can read.
func TestEndpointsFollowTheNodesPods(t *testing.T) {
	for name, tt := range map[string]struct {
		reported []*corev1.Pod
		want     string
	}{
		"a pod that is not ready":         {[]*corev1.Pod{nodePod("a", "", "10.0.0.1", false)}, "!10.0.0.1 10.0.9.9"},
		"a pod with another address":      {[]*corev1.Pod{nodePod("a", "", "10.0.0.7", true)}, "10.0.0.7 10.0.9.9"},
		"a pod that lost its address":     {[]*corev1.Pod{nodePod("a", "", "", false)}, "10.0.9.9"},
		"a pod that has changed twice":    {[]*corev1.Pod{nodePod("a", "", "10.0.0.1", false), nodePod("a", "", "10.0.0.8", true)}, "10.0.0.8 10.0.9.9"},
		"another pod of the same node":    {[]*corev1.Pod{nodePod("b", "", "10.0.0.2", false)}, "10.0.0.1 10.0.9.9"},
		"a pod that is ready once more":   {[]*corev1.Pod{nodePod("a", "", "10.0.0.1", false), nodePod("a", "", "10.0.0.1", true)}, "10.0.0.1 10.0.9.9"},
		"a pod whose status is the same":  {[]*corev1.Pod{nodePod("a", "", "10.0.0.1", true)}, "10.0.0.1 10.0.9.9"},
		"a pod that has ended, of a Job":  {[]*corev1.Pod{ended("a")}, "10.0.9.9"},
		"a pod that is ready at last":     {[]*corev1.Pod{nodePod("a", "", "", false), nodePod("a", "", "10.0.0.5", true)}, "10.0.0.5 10.0.9.9"},
		"many changes within the version": {many(40), "10.0.1.39 10.0.9.9"},
	} {
		bubble(t, name, func(t *testing.T) {
			p := startProxied(t, newSliceCloud())
			protobufOnly := urlSlices + "?labelSelector=a%3Db"
			p.read(protobufOnly, protobuf)
			p.lose()
			if got := watched(t, p.proxy, "web-1"); len(got) != 0 {
				t.Errorf("at the loss the watch gets %q", got)
			}
			for _, pod := range tt.reported {
				p.report(pod)
			}
			if got := watched(t, p.proxy, "web-1"); len(got) > 0 && got[len(got)-1] != "MODIFIED "+tt.want || len(got) == 0 && tt.want != "10.0.0.1 10.0.9.9" {
				t.Errorf("the held watch gets %q, want %q at last", got, tt.want)
			}
			if got := watched(t, p.proxy, "other-1"); len(got) != 0 {
				t.Errorf("of a slice without pods of the node the watch gets %q", got)
			}
			for _, url := range []string{urlProxySlices, urlSlice, protobufOnly} {
				for _, accept := range []string{"application/json", protobuf} {
					got := p.read(url, accept)
					if shownSlice(got) != tt.want {
						t.Errorf("GET %s as %s: %q, want %q", url, accept, shownSlice(got), tt.want)
					}
					if same := tt.want == "10.0.0.1 10.0.9.9"; (got.ResourceVersion == "90") != same || len(got.ResourceVersion) != 2 {
						t.Errorf("GET %s as %s: it is at version %s", url, accept, got.ResourceVersion)
					}
				}
			}
			fresh := startWatch(as(t.Context(), kubeProxy), t, p.Cache, watchSlices+listWatch)
			synctest.Wait()
			if got := watched(t, fresh, "web-1"); !slices.Equal(got, []string{"ADDED " + tt.want}) {
				t.Errorf("initial events are %q, want %q", got, tt.want)
			}
			if got := fresh.heardEvents(t); got[len(got)-1] != "BOOKMARK:=100" {
				t.Errorf("initial events end with %q", got)
			}
		})
	}
}

func ended(name string) *corev1.Pod {
	p := nodePod(name, "", "10.0.0.1", false)
	p.Status.Phase = corev1.PodSucceeded
	return p
}

func many(n int) (pods []*corev1.Pod) {
	for i := range n {
		pods = append(pods, nodePod("a", "", fmt.Sprint("10.0.1.", i), true))
	}
	return pods
}

// TestEndpointsAtTheLoss: the cloud went away before its slices followed the pods.
func TestEndpointsAtTheLoss(t *testing.T) {
	for name, tt := range map[string]struct {
		event string // of kubelet's watch
		want  []string
	}{
		"a deleted pod":       {podObjectEvent("DELETED", nodePod("a", "110", "10.0.0.1", true)), []string{"MODIFIED 10.0.9.9"}},
		"a pod that is ended": {podObjectEvent("MODIFIED", endedAt("a", "110")), []string{"MODIFIED 10.0.9.9"}},
		"a new pod":           {podObjectEvent("ADDED", nodePod("n", "110", "10.0.0.9", true)), nil},
	} {
		bubble(t, name, func(t *testing.T) {
			p := startProxied(t, newSliceCloud())
			feed := p.opened(p.cloud.podFeeds)
			send(t, feed, tt.event)
			synctest.Wait()
			p.cloud.podFeeds <- feed
			p.lose()
			if got := watched(t, p.proxy, "web-1"); !slices.Equal(got, tt.want) {
				t.Errorf("the watch gets %q, want %q", got, tt.want)
			}
		})
	}
}

func endedAt(name, version string) *corev1.Pod {
	p := ended(name)
	p.ResourceVersion = version
	return p
}

func podObjectEvent(kind string, p *corev1.Pod) string {
	return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", kind, mustJSON(p))
}

// The DaemonSet's new pod reports while the cloud is away; the slice has the old one.
func TestEndpointsOfADaemonSetsNewPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newSliceCloud()
		cloud.pods = append(cloud.pods, nodePod("ds-old00", "52", "10.0.0.3", true, daemonSet("ds")))
		cloud.slices[0] = webSlice("90", webEndpoint("ds-old00", "10.0.0.3", true))
		p := startProxied(t, cloud)
		feed := p.opened(cloud.podFeeds)
		send(t, feed,
			podObjectEvent("DELETED", nodePod("ds-old00", "110", "10.0.0.3", true, daemonSet("ds"))),
			podObjectEvent("ADDED", nodePod("ds-new00", "111", "", false, daemonSet("ds"))))
		synctest.Wait()
		cloud.podFeeds <- feed
		p.lose()
		p.report(nodePod("ds-new00", "", "10.0.0.4", true, daemonSet("ds")))
		if got, want := watched(t, p.proxy, "web-1"), []string{"MODIFIED 10.0.9.9", "MODIFIED 10.0.0.4 10.0.9.9"}; !slices.Equal(got, want) {
			t.Errorf("the watch gets %q, want %q", got, want)
		}
		if got := p.read(urlProxySlices, protobuf).Endpoints[0].TargetRef; got.Name != "ds-new00" || got.UID != "u-ds-new00" {
			t.Errorf("the endpoint's pod is %+v", got)
		}
	})
}

// The pod of a Job is gone, and a DaemonSet has the Job's name.
func TestAnEndpointDoesNotGoToAnotherOwnersPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job, ds := daemonSet("web"), daemonSet("web")
		job.Kind, job.UID, ds.UID = "Job", "u-job", "u-ds"
		old := nodePod("web-old00", "52", "10.0.0.3", true, job)
		cloud := newSliceCloud()
		cloud.pods = append(cloud.pods, old)
		cloud.slices[0] = webSlice("90", webEndpoint("web-old00", "10.0.0.3", true))
		p := startProxied(t, cloud)
		p.report(old) // as kubelet does before a pod goes
		feed := p.opened(cloud.podFeeds)
		send(t, feed,
			podObjectEvent("DELETED", nodePod("web-old00", "410", "10.0.0.3", true, job)),
			podObjectEvent("ADDED", nodePod("web-new00", "411", "", false, ds)))
		synctest.Wait()
		cloud.podFeeds <- feed
		p.lose()
		p.report(nodePod("web-new00", "", "10.0.0.4", true, ds))
		if got, want := watched(t, p.proxy, "web-1"), []string{"MODIFIED 10.0.9.9"}; !slices.Equal(got, want) {
			t.Errorf("the watch gets %q, want %q", got, want)
		}
	})
}

// Endpoints that other controllers write, and those of nodes that are not this one, stay.
func TestEndpointsThatAreNotTheNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newSliceCloud()
		cloud.slices[0].Labels[discoveryv1.LabelManagedBy] = "multus"
		p := startProxied(t, cloud)
		p.lose()
		p.report(nodePod("a", "", "10.0.0.7", false))
		if got := watched(t, p.proxy, "web-1"); len(got) != 0 {
			t.Errorf("the watch gets %q", got)
		}
		if got := p.read(urlProxySlices, protobuf); shownSlice(got) != "10.0.0.1 10.0.9.9" {
			t.Errorf("the list has %q", shownSlice(got))
		}
	})
}

// A node that has not read all its pods knows nothing of the endpoints of others.
func TestEndpointsStayWhereThePodsAreUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &proxied{t: t, cloud: newSliceCloud(), dir: filepath.Join(t.TempDir(), "cache")}
		p.start()
		p.read(urlProxySlices, protobuf)
		get(t, p.Cache, "/api/v1/namespaces/ns/pods/b")
		get(t, p.Cache, "/api/v1/namespaces/other/pods"+"?fieldSelector=spec.nodeName%3Dnode1")
		p.lose()
		if got := p.read(urlProxySlices, protobuf); shownSlice(got) != "10.0.0.1 10.0.9.9" {
			t.Errorf("the list has %q", shownSlice(got))
		}
	})
}

// Who has not read slices reads none; what is on disk is the cloud's.
func TestEndpointsGiveNobodyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startProxied(t, newSliceCloud())
		ask(as(t.Context(), "other.token"), t, p.Cache, http.MethodGet, urlPods)
		p.lose()
		p.report(nodePod("a", "", "10.0.0.7", true))
		for _, url := range []string{urlSlices, urlProxySlices, urlSlice} {
			if got := ask(as(t.Context(), "other.token"), t, p.Cache, http.MethodGet, url); got != view.ErrNeverRead.Error() {
				t.Errorf("GET %s by another user: %s", url, got)
			}
		}
		if got := get(t, p.Cache, urlProxySlices); got != view.ErrNeverRead.Error() {
			t.Errorf("LIST by the node, which has read no slices: %s", got)
		}
		time.Sleep(10 * time.Second) // the disk has everything
		for _, v := range p.views.All() {
			if v.Key.Resource != "endpointslices" {
				continue
			}
			_, members := v.Members()
			for _, m := range members {
				o, err := v.Read(m.Name, m.Revision)
				if b := o.Bare; err != nil || bytes.Contains(b, []byte("10.0.0.7")) {
					t.Errorf("cached is %s, %v", b, err)
				}
			}
		}
	})
}

func TestEndpointsAfterARestartOfTheHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startStopped(t, newSliceCloud())
		p.start()
		synctest.Wait()
		w := startWatch(as(t.Context(), kubeProxy), t, p.Cache, watchSlices+"&resourceVersion=100")
		synctest.Wait()
		if got, want := watched(t, w, "web-1"), []string{"MODIFIED 10.0.0.7 10.0.9.9"}; !slices.Equal(got, want) {
			t.Errorf("the watch gets %q, want %q", got, want)
		}
		p.report(nodePod("a", "", "10.0.0.8", true))
		for _, accept := range []string{"application/json", protobuf} {
			if got := p.read(urlProxySlices, accept); shownSlice(got) != "10.0.0.8 10.0.9.9" {
				t.Errorf("the list has %q", shownSlice(got))
			}
			if got := p.readNamed(urlProxySlices, accept, "kubernetes"); shownSlice(got) != "169.254.2.1:10268" {
				t.Errorf("the apiservers' slice has %q", shownSlice(got))
			}
		}
	})
}

func withPodServers(o *Options) {
	o.PodServers = []netip.AddrPort{netip.MustParseAddrPort("[fd00::2:1]:10268"), netip.MustParseAddrPort("169.254.2.1:10268")}
}

func TestTheAPIServersSliceLeadsToTheHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startProxied(t, newSliceCloud(), withPodServers)
		p.lose()
		const hub, cloud = "169.254.2.1:10268", "192.0.2.1:6443"
		if got := p.readNamed(urlProxySlices, protobuf, "kubernetes"); shownSlice(got) != hub {
			t.Errorf("the list has %q", shownSlice(got))
		}
		p.cloud.comeBack()
		time.Sleep(time.Second)
		p.lose()
		p.cloud.comeBack()
		feed, _ := p.resumed()
		p.cloud.set("150", webSlice("90", webEndpoint("a", "10.0.0.1", true)), otherSlice("91"), apiServerSlice("150"))
		send(t, feed, sliceEvent("MODIFIED", apiServerSlice("150")))
		synctest.Wait()
		if got, want := watched(t, p.proxy, "kubernetes"), []string{"MODIFIED " + hub, "MODIFIED " + cloud, "MODIFIED " + hub, "MODIFIED " + cloud, "MODIFIED " + cloud}; !slices.Equal(got, want) {
			t.Errorf("the watch gets %q, want %q", got, want)
		}
		if got := p.readNamed(urlProxySlices, protobuf, "kubernetes"); shownSlice(got) != cloud {
			t.Errorf("online the list has %q", shownSlice(got))
		}
		if got := watched(t, p.proxy, "web-1"); len(got) != 0 {
			t.Errorf("of another slice the watch gets %q", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p := startProxied(t, newSliceCloud())
		p.lose()
		if got := watched(t, p.proxy, "kubernetes"); len(got) != 0 {
			t.Errorf("where pods do not use the hub, the watch gets %q", got)
		}
	})
}
