package fuzzcache

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"
)

// session is a world with clients that read and write.
type session struct {
	*world
	length           time.Duration
	ctx              context.Context
	stop             context.CancelFunc
	stopWriting      context.CancelFunc
	readers, writers sync.WaitGroup
	followers        []*follower
}

// newSession makes a world, whose clients start. They end with the test, which fails for what was found.
func newSession(t *testing.T, m *mode) *session {
	t.Helper()
	seed := number(t, "SEED", rand.Uint64N(1_000_000))
	t.Logf("SEED=%d", seed)
	length, paced := time.Duration(number(t, "SECONDS", 60))*time.Second, *m
	paced.pause = min(m.pause, length/10) // a short run has no fewer faults than it needs
	s := &session{world: newWorld(t, seed, &paced), length: length}
	s.ctx, s.stop = context.WithCancel(t.Context())
	writing, stopWriting := context.WithCancel(s.ctx)
	s.stopWriting = stopWriting
	t.Cleanup(func() {
		s.stop()
		s.writers.Wait()
		s.readers.Wait()
		s.summarize()
	})
	for i := range uint64(2) {
		r := s.random(100 + i)
		s.writers.Go(func() { s.writeDirectly(writing, r) })
	}
	kubelet, r := s.users[0].newClient("kubelet", false), s.random(200)
	s.writers.Go(func() { kubelet.reportStatuses(writing, r) })
	s.followers = s.startClients(s.ctx, writing, &s.readers, &s.writers)
	if m.attacked {
		s.startAttackers(writing, &s.writers)
	}
	return s
}

// playFor plays faults for a while. Each call begins with the mode's first ones.
func (s *session) playFor(length time.Duration, stream uint64) {
	ctx, cancel := context.WithTimeout(s.ctx, length)
	defer cancel()
	s.play(ctx, s.random(stream))
}

// playOn plays until enough has happened: which faults come, and when, is random.
func (s *session) playOn(stream uint64) {
	for more := range uint64(4) {
		lacking := s.lacking(s.length)
		if len(lacking) == 0 {
			return
		}
		s.note("playing on: %v", lacking)
		s.playFor(min(s.length, 10*time.Minute)/4, stream+more)
	}
}

// end has everybody stop to write, and waits until all watches have what etcd has. See settle.
func (s *session) end(whole bool) {
	s.t.Helper()
	s.note("the end: all is whole")
	s.stopWriting()
	s.writers.Wait()
	s.settle(s.followers, whole)
	s.stop()
	s.readers.Wait()
	s.didEnough(s.length)
}

func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		t.Fatalf("%s=%q: want a number", name, value)
	}
	return n
}

// startClients starts the clients of all users. Those that write end with writing.
func (w *world) startClients(ctx, writing context.Context, readers, writers *sync.WaitGroup) []*follower {
	var all []*follower
	for i, u := range w.users {
		for j := range 3 {
			r := w.random(uint64(1000 + 10*i + j))
			c := u.newClient("reader-"+strconv.Itoa(j), u.name != "node" && j > 0)
			readers.Go(func() { c.readOn(ctx, r) })
		}
		r := w.random(uint64(2000 + i))
		c := u.newClient("writer", u.name != "node")
		writers.Go(func() {
			for writing.Err() == nil {
				c.write(writing, r)
				pause(writing, time.Duration(r.IntN(400))*time.Millisecond)
			}
		})
		if u.revocable {
			continue
		}
		for j := range 6 {
			r := w.random(uint64(3000 + 10*i + j))
			c := u.newClient("watcher-"+strconv.Itoa(j), u.name != "node" && j%2 == 0)
			fl := newFollower(c, u.queries[r.IntN(len(u.queries))], forms[r.IntN(len(forms))])
			all = append(all, fl)
			if j < 2 && fl.q.resource != widgets && !fl.f.metadata() && !fl.f.table() {
				readers.Go(func() {
					if err := fl.reflect(ctx); err != nil {
						w.report("a reflector that cannot be made", "%v", err)
					}
				})
				continue
			}
			readers.Go(func() { fl.watch(ctx, r, j%2 == 0 && !fl.f.table()) })
		}
	}
	return all
}

// readOn lists, and gets, until ctx ends.
func (c *client) readOn(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		if r.IntN(3) == 0 {
			c.list(ctx, r)
		} else {
			c.get(ctx, r)
		}
		if r.IntN(2) == 0 {
			c.getAny(ctx, r)
		}
		pause(ctx, time.Duration(20+r.IntN(200))*time.Millisecond)
	}
}
