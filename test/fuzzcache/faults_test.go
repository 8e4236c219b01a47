package fuzzcache

import (
	"context"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/edgehub-io/edgehub/test/cluster/link"
	"github.com/edgehub-io/edgehub/test/internal/metric"
	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

// fault is something that is done to the links, the hub, its files or its users. It leaves everything
// whole, and is for the test's own goroutine.
type fault func(w *world, ctx context.Context, r *rand.Rand)

// mode is what a world plays.
type mode struct {
	pause    time.Duration // between two faults, at most
	first    []fault       // what each play begins with
	faults   []weighted
	args     []string           // of the hub
	attacked bool               // beside the users there are others who want to read what is not theirs
	disk     int                // MiB of the disk that the hub has for itself, as far as the test may mount one; 0: none
	least    map[string]float64 // what has to happen in each minute for a play to prove anything
}

type weighted struct {
	weight int
	do     fault
}

// draw returns one of the faults.
func (m *mode) draw(r *rand.Rand) fault {
	all := 0
	for _, f := range m.faults {
		all += f.weight
	}
	k := r.IntN(all)
	for _, f := range m.faults {
		if k -= f.weight; k < 0 {
			return f.do
		}
	}
	panic("a weight below 0")
}

// play has one fault after the other until ctx ends.
func (w *world) play(ctx context.Context, r *rand.Rand) {
	for n := 0; ctx.Err() == nil; n++ {
		least := min(500*time.Millisecond, w.mode.pause/10)
		pause(ctx, least+time.Duration(r.Int64N(int64(w.mode.pause))))
		if ctx.Err() != nil {
			return
		}
		do := w.mode.draw(r)
		if n < len(w.mode.first) {
			do = w.mode.first[n]
		}
		do(w, ctx, r)
	}
}

func (w *world) links() []*link.Link { return append([]*link.Link{w.hub.Link}, w.hub.Others...) }

// cut takes the cloud away. Sometimes the hub ends and starts meanwhile, once or twice.
func (w *world) cut(ctx context.Context, r *rand.Rand) {
	hole := r.IntN(3) == 0
	length := time.Duration(300+r.IntN(1<<(8+r.IntN(6)))) * time.Millisecond
	w.note("cut for %v; black hole: %t", length, hole)
	w.did("cuts")
	mend := w.cutOff(hole)
	defer mend()
	pause(ctx, length/2)
	switch r.IntN(12) {
	case 0, 1, 2:
		w.restart(r, r.IntN(2) == 0)
	case 3:
		w.spoil(ctx, r)
	}
	pause(ctx, length/2)
}

// cutOff takes the cloud away until the function that it returns is called.
func (w *world) cutOff(hole bool) (mend func()) {
	if !w.log.wasLost(statusKept) {
		w.statuses.lost(time.Time{}) // the hub may have dropped them
	}
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
	return func() {
		if w.isLost() {
			w.log.during(&w.log.losses, "the hub knows of the cut")()
		} else {
			w.note("the hub does not know of the cut")
		}
		ended()
		w.mend()
	}
}

// isLost reports whether the hub can reach no apiserver, by its own metric.
func (w *world) isLost() bool {
	_, text := rawclient.Ask(w.t.Context(), http.MethodGet, w.hub.API+"/metrics")
	up, ok, err := metric.Sum(text, "edgehub_upstream_up")
	return ok && err == nil && up == 0
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
	w.whileDown(kill, func() {
		if r.IntN(3) == 0 {
			pause(w.t.Context(), time.Duration(r.IntN(1500))*time.Millisecond)
		}
		if r.IntN(2) == 0 {
			w.copyStore()
		}
	})
}

func (w *world) rotateOne(ctx context.Context, r *rand.Rand) {
	u := w.users[1+r.IntN(len(w.users)-1)]
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := w.rotate(ctx, u, r.IntN(2) == 0); err == nil {
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
