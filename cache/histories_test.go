package cache

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/view"
)

// After a restore of etcd a version may name another state of an object, while other views are
// still from before.
func TestViewsFromBeforeAndAfterARestoreDoNotShareObjects(t *testing.T) {
	const selected = urlPods + "?labelSelector=l"
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50", "old"))
		get(t, c, selected)
		time.Sleep(5 * time.Second)
		u.shows("90", podJSON("a", "50", "newer"))
		get(t, c, urlPods)
		time.Sleep(time.Second) // it is listed once more
		for range 2 {
			u.goAway()
			expect(t, c, "offline", urlPods, "90: a=50/newer")
			if got := get(t, c, selected); got != "100: a=50/old" && got != view.ErrNeverRead.Error() {
				t.Errorf("offline, the view that has not followed yet: %q", got)
			}
			u.comeBack()
			time.Sleep(5 * time.Second) // and then from the disk
		}
	})
}
