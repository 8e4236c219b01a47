package identity

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/edgehub-io/edgehub/cache/quota"
)

// inPod returns a token of a pod, issued at a time.
func inPod(pod string, issued time.Time) string {
	return jwt(fmt.Sprintf(`{"iat":%d,"kubernetes.io":{"pod":{"uid":%q}}}`, issued.Unix(), pod))
}

const after, within = 10 * time.Minute, 30 * time.Minute

// confirm has all tokens reviewed again that wait for it, as the cache does.
func (t *Tokens) confirm(tb *testing.T, since time.Time) {
	tb.Helper()
	for t.Confirm(tb.Context(), quota.Turns{After: after, Within: within, Since: since}) {
		time.Sleep(6 * time.Second)
	}
}

// A pod that seldom reads must be able to without the cloud; what replaced a token need not outlive it.
func TestWhichTokensAreReviewedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		replaced, idle, used := inPod("p", now.Add(-time.Hour)), inPod("p", now), inPod("q", now)
		disk := memory(t)
		a := newAPIServer(t)
		for _, one := range []string{replaced, idle, used} {
			a.users[one] = authenticationv1.UserInfo{Username: "system:serviceaccount:ns:a", UID: "u"}
		}
		tokens := open(t, a, disk)
		for _, one := range []string{replaced, idle, used} {
			tokens.identify(t, one)
		}
		tokens = open(t, a, disk) // a restart: two are not used afterwards
		tokens.Recall(replaced)
		tokens.Recall(idle)
		tokens.Recall("nobody's")
		since := time.Now()
		a.set(func() { a.asked = nil })
		synctest.Wait()
		before := contents(t, disk)
		for range 2 {
			tokens.confirm(t, since)
			if n := a.count(); n != 0 {
				t.Fatalf("%d reviews of what was just reviewed", n)
			}
			time.Sleep(after)
			tokens.offline(used)
			tokens.confirm(t, since)
			if n := a.count(); n != 2 {
				t.Errorf("%d reviews, want those of the pods' newest tokens", n)
			}
			a.set(func() { a.asked = nil })
		}
		synctest.Wait()
		if contents(t, disk) != before {
			t.Error("a review that changes nothing is written")
		}
		time.Sleep(within - 2*after)
		tokens.confirm(t, since)
		for _, tokens := range []*Tokens{tokens, open(t, a, disk)} {
			for secret, known := range map[string]bool{replaced: false, idle: true, used: true} {
				if got := tokens.offline(secret); (got != "") != known {
					t.Errorf("%s is known as %q", secret, got)
				}
			}
		}
	})
}

func TestTimeWithoutTheCloudHasNoTokenForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t, "a")
		disk := memory(t)
		open(t, a, disk).identify(t, "a")
		tokens := open(t, a, disk) // it has no token in memory
		for range 100 {
			time.Sleep(24 * time.Hour)
			since := time.Now()
			time.Sleep(within - time.Second)
			tokens.confirm(t, since)
		}
		if got := tokens.offline("a"); got != keyOfA || a.count() != 1 {
			t.Errorf("after many outages it is %q's, and was reviewed %d times", got, a.count())
		}
	})
}
