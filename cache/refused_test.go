package cache

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// While apiservers refuse the node, the cloud is away for the node only.
func TestTheNodeIsServedOfflineWhileApiserversRefuseIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50"))
		pod := as(t.Context(), "token")
		ask(pod, t, c, http.MethodGet, urlPods)
		nodes := startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=100")
		nodesFeed := <-u.feeds
		pods := startWatch(pod, t, c, urlWatch+"&resourceVersion=100")
		podsFeed := <-u.feeds

		u.shutOut()
		u.shows("110", podJSON("a", "50"), podJSON("b", "110"))
		nodesFeed.CloseWithError(io.ErrUnexpectedEOF)
		podsFeed.CloseWithError(io.ErrUnexpectedEOF)
		time.Sleep(10 * time.Second)
		if n := u.count("watch"); n != 3 {
			t.Errorf("%d watches were opened again, want the pod's alone", n-2)
		}
		send(t, <-u.feeds, podEvent("ADDED", "b", "110"))
		if got := ask(pod, t, c, http.MethodGet, urlPods); got != "110: a=50 b=110" {
			t.Errorf("the pod reads %q", got)
		}
		if got := get(t, c, urlPods); got != "100: a=50" {
			t.Errorf("the node reads %q, want what it read before", got)
		}
		time.Sleep(51 * time.Second)
		if got := nodes.heard(t); got != "BOOKMARK:=100" {
			t.Errorf("the node's watch, which is held, has %q", got)
		}

		u.letIn()
		feed := <-u.feeds
		send(t, feed, podEvent("ADDED", "b", "110"))
		synctest.Wait()
		if got := nodes.heard(t); got != "BOOKMARK:=100 ADDED:b=110" {
			t.Errorf("the node's watch has %q", got)
		}
		if got := pods.heard(t); got != "ADDED:b=110" {
			t.Errorf("the pod's watch has %q", got)
		}
		if got := get(t, c, urlPods); got != "110: a=50 b=110" {
			t.Errorf("the node reads %q", got)
		}
	})
}
