package cache

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/records"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// viewOf keeps a view of a user that takes so many bytes, and was used at a time.
func viewOf(c *Cache, user, name string, used int64, size int) *view {
	key := podsKey(user)
	key.Labels = name
	if user == query.NodeUser { // nothing that a kubelet reads
		key.Resource = "endpoints"
	}
	return keptView(c, key, used, size)
}

func keptView(c *Cache, key query.Key, used int64, size int) *view {
	v := c.views.acquire(key)
	v.used.Store(used)
	v.keepSingle(wire.TypeMeta{APIVersion: "v1", Kind: "Pod"}, "ns/a", "", "1", []byte(strings.Repeat("x", size)))
	v.release()
	c.views.settle(v)
	return v
}

// account is the key of a service account.
func account(namespace, name string) string {
	return identity.User{Name: "system:serviceaccount:" + namespace + ":" + name, UID: "1"}.Key()
}

// keptLabels are the names of the views that are kept.
func keptLabels(c *Cache) (kept []string) {
	for _, s := range c.State() {
		kept = append(kept, s.LabelSelector)
	}
	slices.Sort(kept)
	return kept
}

func TestWhichViewsAreEvicted(t *testing.T) {
	const size, most = 100 << 10, 500 << 10 // four fit
	for name, test := range map[string]struct {
		others []string // "user/name", with + where a client watches it, in the order in which they were used
		newest string
		want   []string
	}{
		"of the user with the most, what was used least recently": {
			[]string{"victim/v", "flooder/1", "flooder/2", "flooder/3"}, "flooder/4", []string{"2", "3", "4", "v"},
		},
		"of it, also where another user reads": {
			[]string{"flooder/1", "flooder/2", "flooder/3", "flooder/4"}, "victim/v", []string{"2", "3", "4", "v"},
		},
		"what is watched goes last": {
			[]string{"a/1+", "a/2", "a/3+", "a/4"}, "a/5", []string{"1", "3", "4", "5"},
		},
		"what is watched goes after what has just come": {
			[]string{"a/1+", "a/2+", "a/3+", "a/4+"}, "a/5", []string{"1", "2", "3", "4"},
		},
		"what is watched goes, if nobody holds more": {
			[]string{"a/1+", "a/2+", "a/3+", "a/4+"}, "b/v", []string{"2", "3", "4", "v"},
		},
		"of the namespace whose accounts have the most together": {
			[]string{"victim/v", "victim/w", account("ns", "a") + "/1", account("ns", "b") + "/2"}, account("ns", "c") + "/3", []string{"2", "3", "v", "w"},
		},
		"the node keeps three times as much": {
			[]string{"node/1", "node/2", "node/3", "a/4"}, "a/5", []string{"1", "2", "3", "5"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := openCache(t, t.TempDir(), newUpstream(), func(o *Options) { o.MaxBytes = most })
			add := func(i int, text string) *view {
				user, name, _ := strings.Cut(strings.TrimSuffix(text, "+"), "/")
				v := viewOf(c, user, name, int64(i), size)
				if strings.HasSuffix(text, "+") {
					v.holders.Add(1)
				}
				return v
			}
			for i, text := range test.others {
				add(i, text)
			}
			newest := add(len(test.others), test.newest)
			newest.holders.Add(1) // the request that reads it
			kept := c.views.fit(newest)
			if got := keptLabels(c); !slices.Equal(got, test.want) {
				t.Errorf("%v are kept, want %v", got, test.want)
			}
			if _, name, _ := strings.Cut(test.newest, "/"); kept != slices.Contains(test.want, name) {
				t.Errorf("what was just read is kept: fit says %t", kept)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A flood must not cost a look at all views for each of its lists.
func TestEvictionMakesRoomForMoreThanOneView(t *testing.T) {
	c := openCache(t, t.TempDir(), newUpstream())
	for i := range maxViews + 1 {
		viewOf(c, "flooder", fmt.Sprint("l", i), int64(i), 1)
	}
	c.views.fit(viewOf(c, "flooder", "newest", maxViews+1, 1))
	if n := len(keptLabels(c)); n > maxViews-maxViews/roomShare || n < maxViews*9/10 {
		t.Errorf("%d views are kept, and the bound is %d", n, maxViews)
	}
	if n := len(c.views.all()); n > maxViews {
		t.Errorf("%d views are in memory", n)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// The sum that decides must be that of the views, whatever becomes of them.
func TestTheRoomThatIsTakenIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		u.shows("100", podJSON("a", "50"), podJSON("b", "60"))
		c := startCache(t, u)
		for i := range 10 {
			ask(as(t.Context(), fmt.Sprint("client", i%3)), t, c, "GET", fmt.Sprintf("%s?labelSelector=l%d", urlPods, i))
			ask(as(t.Context(), "client"), t, c, "GET", urlPodA)
		}
		c.views.all()[0].drop()
		c.views.all()[1].drop()
		time.Sleep(3 * records.SweepEvery)
		synctest.Wait() // for the last of the sweeps
		want := usage{}
		for _, s := range c.State() {
			want.count, want.bytes = want.count+1, want.bytes+s.Bytes+viewCost
		}
		for _, v := range c.views.all() {
			if v.counted.count > 0 {
				want.bytes += int64(len(v.key.Bytes()))
			}
		}
		if got := c.views.room.used(); got != want || want.count == 0 {
			t.Errorf("%+v are counted, and there are %+v", got, want)
		}
	})
}

// #17: lists that are read page by page, and not to their end.
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
		for i := range 2 * maxPages {
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

// The same by service accounts of a namespace, each of which reads no more than others do.
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
		for i := range 2 * maxPages {
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

// Where what the kubelet reads exceeds the bound, there is nothing to choose from. What else
// is read goes at once, and nobody looks at all views, nor waits for one that is in use.
func TestWhereOnlyTheKubeletsViewsAreLeftNobodyLooksAtAll(t *testing.T) {
	const size = 100 << 10
	c := openCache(t, t.TempDir(), newUpstream(), func(o *Options) { o.MaxBytes = 3 * size })
	kubelets := func(name string, i int64) *view {
		key := podsKey(query.NodeUser)
		key.Labels = name
		return keptView(c, key, i, size)
	}
	busy := kubelets("0", 0)
	for i := range int64(4) {
		kubelets(fmt.Sprint("k", i), i)
	}
	viewOf(c, "other", "before", 5, size)
	if c.views.fit(viewOf(c, "other", "first", 6, size)) {
		t.Error("there is room for another's view")
	}
	for name, read := range map[string]func() *view{
		"the kubelet's": func() *view { return kubelets("newest", 7) },
		"another's":     func() *view { return viewOf(c, "other", "newest", 8, size) },
	} {
		v := read()
		busy.mu.Lock()
		kept := make(chan bool, 1)
		go func() { kept <- c.views.fit(v) }()
		select {
		case kept := <-kept:
			if kept != v.kubelets() {
				t.Errorf("%s view is kept: %t", name, kept)
			}
		case <-time.After(2 * time.Minute):
			t.Errorf("%s view makes the cache look at all views", name)
		}
		busy.mu.Unlock()
	}
	if got, want := keptLabels(c), []string{"0", "k0", "k1", "k2", "k3", "newest"}; !slices.Equal(got, want) {
		t.Errorf("%v are kept, want %v", got, want)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
