package soak_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/edgehub-io/edgehub/test/cluster/link"
)

const (
	// leastCut and mostCut bound how long the link is cut.
	leastCut, mostCut = 10 * time.Second, 20 * time.Second
	// returnGrace is how long after a cut the cloud may still be taken for lost: it is
	// looked for each second.
	returnGrace = 4 * time.Second
	// flap is the time between two resets of a link that is otherwise up.
	flap = 2 * time.Second
)

// cuts breaks a link again and again, each time in another way.
type cuts struct {
	t     *testing.T
	link  *link.Link
	every time.Duration

	mu   sync.Mutex
	past []cut
}

// cut is a time in which the cloud is away, or may seem so. Without an end it goes on.
type cut struct{ begin, end time.Time }

func newCuts(t *testing.T, l *link.Link, every time.Duration) *cuts {
	t.Helper()
	if every < mostCut+returnGrace+2*time.Second {
		t.Fatalf("CUT_EVERY=%s leaves no time between cuts, which take up to %s", every, mostCut)
	}
	return &cuts{t: t, link: l, every: every}
}

// run cuts until ctx ends, and leaves the link up.
func (c *cuts) run(ctx context.Context) error {
	lengths := rand.New(rand.NewPCG(1, 0))
	ways := []func(context.Context, time.Duration) error{c.refuse, c.flap, c.blackHole}
	for n := 0; ; n++ {
		length := leastCut + time.Duration(lengths.Int64N(int64(mostCut-leastCut)))
		if !pause(ctx, c.every-length) {
			return nil
		}
		c.begin()
		if err := ways[n%len(ways)](ctx, length); err != nil {
			return fmt.Errorf("cut the link: %w", err)
		}
		if err := c.link.Up(); err != nil {
			return fmt.Errorf("mend the link: %w", err)
		}
		c.end()
	}
}

// refuse is a machine in the cloud that goes down.
func (c *cuts) refuse(ctx context.Context, length time.Duration) error {
	err := c.link.Refuse()
	c.link.Reset()
	pause(ctx, length)
	return err
}

// flap is a line that breaks as soon as it is up.
func (c *cuts) flap(ctx context.Context, length time.Duration) error {
	for deadline := time.Now().Add(length); time.Now().Before(deadline); {
		c.link.Reset()
		if !pause(ctx, flap) {
			break
		}
	}
	return nil
}

// blackHole is a cable that is cut.
func (c *cuts) blackHole(ctx context.Context, length time.Duration) error {
	err := c.link.BlackHole()
	pause(ctx, length)
	return err
}

func (c *cuts) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.past = append(c.past, cut{begin: time.Now()})
}

func (c *cuts) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.past[len(c.past)-1].end = time.Now()
}

func (c *cuts) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.past)
}

// touched reports whether the cloud was away at some time between two, or might have
// seemed so.
func (c *cuts) touched(from, to time.Time) bool {
	return c.any(func(k cut) bool { return k.begin.Before(to) && (k.end.IsZero() || from.Before(k.end.Add(returnGrace))) })
}

// any reports whether there is a cut like that.
func (c *cuts) any(like func(cut) bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.past) - 1; i >= 0; i-- {
		if like(c.past[i]) {
			return true
		}
	}
	return false
}

// pause returns false when ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// together runs all for a time, or until one of them fails, which fails the test.
func together(t *testing.T, length time.Duration, all ...func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	running, ctx := errgroup.WithContext(ctx)
	for _, run := range all {
		running.Go(func() error { return run(ctx) })
	}
	if err := running.Wait(); err != nil {
		t.Fatal(err)
	}
}
