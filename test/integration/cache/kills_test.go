package cache

import (
	"math/rand/v2"
	"testing"
	"time"
)

// clients follow through kills of the hub, with the cloud there and away when it starts
// again. What the hub had not yet written is lost then, so that clients are ahead of it;
// they may list again, and must neither miss anything nor get anything twice.
func TestClientsFollowThroughKillsOfTheHub(t *testing.T) {
	t.Parallel()
	const kills = 12
	random := rand.New(rand.NewPCG(seedOf(t), 0))
	h, s := newHub(t), newSpace(t)
	s.fill("c", 20)
	var followers []*follower
	for _, accept := range []string{protobuf, asJSON} {
		for _, path := range []string{s.path, s.named("c-007")} {
			f := follow(t, h.node, path, accept)
			f.allowBreaks()
			followers = append(followers, f)
		}
	}
	for n := range kills {
		for range random.IntN(10) {
			s.anything(random)
		}
		<-time.After(time.Duration(random.IntN(1500)) * time.Millisecond) // commits come in between, or not
		h.kill()
		away := random.IntN(2) == 0
		if away {
			h.cut()
		}
		for range random.IntN(10) {
			s.anything(random)
		}
		h.start()
		if away {
			<-time.After(time.Duration(random.IntN(1000)) * time.Millisecond) // clients come back, and are held
			h.connect()
		}
		for _, f := range followers {
			f.reaches(t, env.direct)
			f.sound(t)
		}
		if t.Failed() {
			t.Fatalf("after kill %d, cloud away: %v", n, away)
		}
	}
	for _, f := range followers {
		lists, ends := f.counts()
		t.Logf("%s: %d lists, %d ends of watches", f.path, lists, ends)
	}
}
