package cache

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/cache/view"
)

// #17: lists of which clients read only the first page, by one user, or by many service accounts of a namespace, each of
// which reads no more than others.
func TestAFloodOfFirstPagesDropsNoneOfOtherUsers(t *testing.T) {
	const lists = 3
	for name, flooder := range map[string]func(i int) string{
		"by one user":      func(int) string { return "flooder" },
		"by many accounts": func(i int) string { return fmt.Sprint("system:serviceaccount:flood:a", i) },
	} {
		bubble(t, name, func(t *testing.T) {
			u := newUpstream()
			c := startCache(t, u)
			first := func(token string) string {
				return strings.Replace(podsJSON("100", podJSON("a", "99")), `"100"`, fmt.Sprintf(`"100","continue":%q`, token), 1)
			}
			url := func(i int) string { return fmt.Sprintf("%s?labelSelector=l%d", urlPods, i) }
			victims := []context.Context{as(t.Context(), "system:serviceaccount:ns:victim"), as(t.Context(), "other")}
			each := func(do func(victim context.Context, i int)) {
				for _, victim := range victims {
					for i := range lists {
						do(victim, i)
					}
				}
			}
			u.onText("list", http.StatusOK, first("next"))
			each(func(victim context.Context, i int) { ask(victim, t, c, http.MethodGet, url(i)+"&limit=2") })
			for i := range 2 * view.MaxPartialLists {
				time.Sleep(time.Second)
				u.onText("list", http.StatusOK, first(fmt.Sprint(i)))
				ask(as(t.Context(), flooder(i)), t, c, http.MethodGet, urlPods+"?limit=2")
			}
			u.onText("list", http.StatusOK, podsJSON("100", podJSON("b", "98")))
			each(func(victim context.Context, i int) {
				ask(victim, t, c, http.MethodGet, url(i)+"&limit=2&continue=next")
			})
			u.goAway()
			each(func(victim context.Context, i int) {
				if got, want := ask(victim, t, c, http.MethodGet, url(i)), "100: a=99 b=98"; got != want {
					t.Errorf("offline, list %d is %q, want %q", i, got, want)
				}
			})
		})
	}
}

// Invariant 3: the pages of two readers at once, of two versions, are two lists; the newer one counts.
func TestPagesOfTwoReadersAtOnce(t *testing.T) {
	for _, order := range [][]string{{"old", "new"}, {"new", "old"}} {
		bubble(t, order[1]+" ends last", func(t *testing.T) {
			u := newUpstream()
			c := startCache(t, u)
			for _, page := range []string{
				`{"resourceVersion":"100","continue":"old"},"items":[` + podJSON("a", "50"), `{"resourceVersion":"200","continue":"new"},"items":[` + podJSON("a", "150"),
			} {
				u.onText("list", http.StatusOK, `{"kind":"PodList","apiVersion":"v1","metadata":`+page+"]}")
				get(t, c, urlPods+"?limit=5")
			}
			for _, token := range order {
				u.onText("list", http.StatusOK, map[string]string{"old": podsJSON("100", podJSON("b", "51")), "new": podsJSON("200", podJSON("c", "160"))}[token])
				get(t, c, urlPods+"?limit=5&continue="+token)
			}
			u.goAway()
			expect(t, c, "offline", urlPods, "200: a=150 c=160")
		})
	}
}
