package fuzzcache

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/edgehub-io/edgehub/test/cluster/link"
)

// play breaks links and ends hubs, one thing after the other, until ctx ends. It leaves
// everything whole. It is for the test's own goroutine.
func (w *world) play(ctx context.Context, r *rand.Rand) {
	for n := 0; ctx.Err() == nil; n++ {
		pause(ctx, time.Duration(500+r.IntN(5000))*time.Millisecond)
		if ctx.Err() != nil {
			return
		}
		k := r.IntN(17)
		switch n {
		case 0, 1, 3:
			k = 16 // a cut
		case 2:
			k = 4 // another default
		}
		switch {
		case k < 2:
			w.restart(r, k == 0)
		case k < 3:
			w.oneLink(ctx, r)
		case k < 4:
			w.truncate(ctx, r)
		case k < 5:
			w.changeDefault(ctx, n)
		case k < 6:
			w.rotateOne(ctx, r, n)
		case k < 7:
			w.turnAccess(ctx, r)
		case k < 9:
			w.slow(ctx, r)
		case k < 10:
			w.spoil(r)
		default:
			w.cut(ctx, r)
		}
	}
}

func (w *world) links() []*link.Link { return append([]*link.Link{w.hub.Link}, w.hub.Others...) }

// cut takes the cloud away. Sometimes the hub ends and starts meanwhile, once or twice.
func (w *world) cut(ctx context.Context, r *rand.Rand) {
	hole := r.IntN(3) == 0
	length := time.Duration(300+r.IntN(1<<(8+r.IntN(6)))) * time.Millisecond
	w.note("cut for %v; black hole: %t", length, hole)
	if w.log.wasWhole(statusKept) {
		w.statuses.lost(time.Time{}) // the hub may have dropped them
	}
	w.did("cuts")
	ended := w.log.during(&w.log.trouble, "the links break")
	for _, l := range w.links() {
		if hole {
			w.must(l.BlackHole())
			continue
		}
		w.must(l.Refuse())
		l.Reset()
	}
	ended()
	ended = w.log.during(&w.log.outages, "cut")
	pause(ctx, length/2)
	switch r.IntN(12) {
	case 0, 1, 2:
		w.restart(r, r.IntN(2) == 0)
	case 3:
		w.spoil(r)
	}
	pause(ctx, length/2)
	ended()
	w.mend()
}

// cutWhile takes the cloud away while something is done.
func (w *world) cutWhile(do func()) {
	w.note("a cut after the end")
	ended := w.log.during(&w.log.trouble, "the links break")
	for _, l := range w.links() {
		w.must(l.Refuse())
		l.Reset()
	}
	ended()
	ended = w.log.during(&w.log.outages, "cut")
	do()
	ended()
	w.mend()
}

func (w *world) mend() {
	for _, l := range w.links() {
		w.must(l.Up())
	}
	w.note("the links are up")
}

// oneLink breaks one of the links: the hub has to find the other.
func (w *world) oneLink(ctx context.Context, r *rand.Rand) {
	l := w.links()[r.IntN(len(w.links()))]
	w.note("one link is broken, to %s", l.Addr())
	w.did("cuts of one link")
	defer w.log.during(&w.log.trouble, "one link")()
	if r.IntN(2) == 0 {
		w.must(l.BlackHole())
	} else {
		w.must(l.Refuse())
		l.Reset()
	}
	pause(ctx, time.Duration(500+r.IntN(5000))*time.Millisecond)
	w.mend()
}

// slow makes the links thin and late for a while. A cut behind it meets what has not come
// yet: all the more of it where the hub was killed before.
func (w *world) slow(ctx context.Context, r *rand.Rand) {
	w.note("the links are slow")
	w.did("slow links")
	ended := w.log.during(&w.log.trouble, "slow links")
	for _, l := range w.links() {
		l.SetDelay(time.Duration(r.IntN(200)) * time.Millisecond)
		l.SetRate(20_000 + r.IntN(100_000))
	}
	if r.IntN(2) == 0 {
		w.restart(r, true)
	}
	pause(ctx, time.Duration(500+r.IntN(3000))*time.Millisecond)
	ended()
	w.cut(ctx, r)
	for _, l := range w.links() {
		l.SetDelay(0)
		l.SetRate(0)
	}
	w.note("the links are not slow any more")
}

// truncate breaks connections in the middle of what they carry.
func (w *world) truncate(ctx context.Context, r *rand.Rand) {
	w.note("connections break in the middle")
	w.did("truncations")
	defer w.log.during(&w.log.trouble, "truncation")()
	for range 1 + r.IntN(6) {
		for _, l := range w.links() {
			l.ResetAfter(int64(r.IntN(1 << (4 + r.IntN(14)))))
		}
		pause(ctx, time.Duration(r.IntN(800))*time.Millisecond)
	}
}

// restart ends the hub, as a crash would or in order, and starts it again.
func (w *world) restart(r *rand.Rand, kill bool) {
	w.note("the hub ends; killed: %t", kill)
	ended := w.log.during(&w.log.trouble, hubIsDown)
	if kill {
		w.did("kills")
		w.hub.Kill()
		now := time.Now()
		for _, u := range w.users {
			u.sight.killed(now)
		}
		w.statuses.lost(now.Add(-lossBeforeKill))
	} else {
		w.did("restarts in order")
		w.hub.Stop()
	}
	w.forgetSpoiled()
	if r.IntN(3) == 0 {
		pause(w.t.Context(), time.Duration(r.IntN(1500))*time.Millisecond)
	}
	if r.IntN(2) == 0 {
		w.copyStore()
	}
	w.hub.Start()
	ended()
	w.note("the hub serves")
}

func (w *world) rotateOne(ctx context.Context, r *rand.Rand, n int) {
	u := w.users[1+r.IntN(len(w.users)-1)]
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := w.rotate(ctx, u, n); err == nil {
		w.note("%s has another token", u.name)
		w.did("rotations of a token")
	}
}

// turnAccess takes one user's access away for a while.
func (w *world) turnAccess(ctx context.Context, r *rand.Rand) {
	w.note("carol has no access")
	w.must(w.forbid(w.t.Context(), w.carol))
	pause(ctx, time.Duration(2000+r.IntN(4000))*time.Millisecond)
	if r.IntN(2) == 0 && ctx.Err() == nil {
		w.cut(ctx, r)
	}
	w.must(w.allow(w.t.Context(), w.carol))
	w.note("carol has access")
	w.did("losses of access")
}
