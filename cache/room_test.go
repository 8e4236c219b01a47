package cache

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/pages"
	"github.com/edgehub-io/edgehub/cache/records"
	"github.com/edgehub-io/edgehub/cache/view"
)

// The sum that decides on evictions must stay equal to that of all views.
func TestUsedEqualsTheSumOfAllViews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		u.shows("100", podJSON("a", "50"), podJSON("b", "60"))
		c := startCache(t, u)
		for i := range 10 {
			ask(as(t.Context(), fmt.Sprint("client", i%3)), t, c, "GET", fmt.Sprintf("%s?labelSelector=l%d", urlPods, i))
			ask(as(t.Context(), "client"), t, c, "GET", urlPodA)
		}
		c.views.All()[0].Reset()
		c.views.All()[1].Reset()
		time.Sleep(3 * records.SweepEvery)
		synctest.Wait() // for the last of the sweeps
		views, bytes := 0, int64(0)
		for _, v := range c.views.All() {
			if s, kept := v.State(); kept {
				views, bytes = views+1, bytes+s.Bytes+view.Cost+int64(len(v.Key.Bytes()))
			}
		}
		if gotViews, gotBytes := c.views.Used(); gotViews != views || gotBytes != bytes || views == 0 {
			t.Errorf("%d views of %d bytes are counted, and there are %d of %d bytes", gotViews, gotBytes, views, bytes)
		}
	})
}

// #17: lists of which clients read only the first page.
func TestAFloodOfFirstPagesDropsNoneOfOtherUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		c := startCache(t, u)
		first := func(token string) string {
			return strings.Replace(podsJSON("100", podJSON("a", "99")), `"100"`, fmt.Sprintf(`"100","continue":%q`, token), 1)
		}
		users := []string{"victim", "other"}
		for _, user := range users {
			u.onText("list", 200, first("next"))
			ask(as(t.Context(), user), t, c, "GET", urlPods+"?limit=2")
		}
		for i := range 2 * pages.Max {
			time.Sleep(time.Second)
			u.onText("list", 200, first(fmt.Sprint(i)))
			ask(as(t.Context(), "flooder"), t, c, "GET", urlPods+"?limit=2")
		}
		for _, user := range users {
			u.onText("list", 200, podsJSON("100", podJSON("b", "98")))
			ask(as(t.Context(), user), t, c, "GET", urlPods+"?limit=2&continue=next")
		}
		u.goAway()
		for _, user := range users {
			if got, want := ask(as(t.Context(), user), t, c, "GET", urlPods), "100: a=99 b=98"; got != want {
				t.Errorf("offline, %s has %q, want %q", user, got, want)
			}
		}
	})
}

// The same with many service accounts of a namespace, each of which reads no more than others.
func TestAFloodOfFirstPagesByManyAccountsDropsNoneOfOtherUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		c := startCache(t, u)
		first := func(token string) string {
			return strings.Replace(podsJSON("100", podJSON("a", "99")), `"100"`, fmt.Sprintf(`"100","continue":%q`, token), 1)
		}
		const victim, lists = "system:serviceaccount:ns:victim", 3
		victims := as(t.Context(), victim)
		selected := func(i int) string { return fmt.Sprintf("%s?labelSelector=l%d&limit=2", urlPods, i) }
		for i := range lists {
			u.onText("list", 200, first("next"))
			ask(victims, t, c, "GET", selected(i))
		}
		for i := range 2 * pages.Max {
			time.Sleep(time.Second)
			u.onText("list", 200, first(fmt.Sprint(i)))
			ask(as(t.Context(), fmt.Sprint("system:serviceaccount:flood:a", i)), t, c, "GET", urlPods+"?limit=2")
		}
		for i := range lists {
			u.onText("list", 200, podsJSON("100", podJSON("b", "98")))
			ask(victims, t, c, "GET", selected(i)+"&continue=next")
		}
		u.goAway()
		for i := range lists {
			if got, want := ask(victims, t, c, "GET", fmt.Sprintf("%s?labelSelector=l%d", urlPods, i)), "100: a=99 b=98"; got != want {
				t.Errorf("offline, list %d is %q, want %q", i, got, want)
			}
		}
	})
}
