package review_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/confirm"
	"github.com/edgehub-io/edgehub/cache/review"
)

// Only the node's own question begins the TTL of a yes, and only a no ends it before.
func TestAYesThatIsConfirmedLastsNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 2 * time.Hour
		k := open(t, memory{}, review.Options{TTL: ttl})
		may, since := accessReview("jane", "get"), time.Now()
		keep(t, k, may, allowed(may))
		said, fails, asked := allowed(may), errors.New("connection refused"), 0
		said.Status.Reason = "another binding"
		post := func(q *review.Question) ([]byte, string, error) {
			if asked++; asked == 1 {
				return nil, "", fails
			}
			body, contentType := encode(t, asJSON, said)
			return body, contentType, nil
		}
		for want := range 2 {
			if k.Confirm(since, post); asked != want {
				t.Errorf("it was asked for %d times, want %d", asked, want)
			}
			time.Sleep(confirm.After)
		}
		if got := answerTo(t, k, may, kubelet); got != "yes RBAC" {
			t.Errorf("when nobody could be asked: %s", got)
		}
		k.Confirm(since, post)
		if got := answerTo(t, k, may, kubelet); got != "yes another binding" {
			t.Errorf("when the answer is another one: %s", got)
		}
		for time.Since(since) < ttl {
			time.Sleep(confirm.After)
			k.Confirm(since, post)
		}
		if got := answerTo(t, k, may, kubelet); got != "no "+why {
			t.Errorf("after its TTL: %s", got)
		}
		keep(t, k, may, allowed(may))
		time.Sleep(confirm.After)
		said.Status.Allowed = false
		if k.Confirm(since, post); k.Len() != 0 {
			t.Error("what is refused is kept")
		}
	})
}
