package liveness

import (
	"io"
	"log/slog"
	"net"
	"net/url"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestTimeInWhichTheHubIsSuspendedDoesNotCount(t *testing.T) {
	c := &Conn{timeouts: Timeouts{Loss: loss, IdlePing: 10 * time.Second}, backlog: func() (uint64, bool) { return 0, false }}
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		c.waitingSince, c.strict, c.waiting = now, 1, 1
		c.due = now.Add(loss)
		time.Sleep(time.Hour) // this process was suspended, or the whole machine
		if _, next := c.checkLocked(time.Now()); next == closeConn {
			t.Error("the connection is closed for silence during which the process was suspended")
		}
		c.due = time.Now().Add(loss)
		time.Sleep(loss)
		if _, next := c.checkLocked(time.Now()); next != closeConn {
			t.Error("the connection is not closed for silence afterwards")
		}
	})
}

// countingServer counts what happens to an apiserver.
type countingServer struct {
	upServer
	starved, lost atomic.Int64
}

func (s *countingServer) Starved(time.Duration) { s.starved.Add(1) }
func (s *countingServer) Unresponsive(error)    { s.lost.Add(1) }

const loss = 2500 * time.Millisecond

// silentConn returns a connection, on which a handshake is pending, and its other end.
func silentConn(t *testing.T, s apiserver, loss time.Duration) (c *Conn, other net.Conn) {
	t.Helper()
	cs := NewConns(s, &url.URL{}, Timeouts{Loss: loss, IdlePing: 10 * time.Second}, slog.New(slog.DiscardHandler))
	own, other := net.Pipe()
	c = newConn(own, cs, nil)
	t.Cleanup(func() { c.Close(); other.Close() })
	c.start(pendingHandshake, time.Now())
	return c, other
}

// checkLate has the next check of c come as late.
func checkLate(c *Conn, late time.Duration) {
	c.mu.Lock()
	c.stopTimerLocked()
	due := c.due
	c.mu.Unlock()
	time.Sleep(time.Until(due) + late)
	c.check()
}

func TestSilenceThatAStarvedHubWouldNotHearIsNoLoss(t *testing.T) {
	for name, tt := range map[string]struct {
		late    time.Duration
		starved int64
		least   time.Duration // until the apiserver is lost
		most    time.Duration
	}{
		"it runs in time":         {0, 0, loss, loss},
		"it is a little late":     {50 * time.Millisecond, 0, loss, loss + time.Second},
		"it is late all the time": {200 * time.Millisecond, maxVoid, 9 * loss, 12 * loss},
		"it is very late":         {400 * time.Millisecond, maxVoid, 9 * loss, 14 * loss},
		"it hardly runs":          {2 * time.Second, maxVoid, 9 * loss, 27 * loss},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &countingServer{}
				c, _ := silentConn(t, s, loss)
				began := time.Now()
				for s.lost.Load() == 0 && time.Since(began) < time.Hour {
					checkLate(c, tt.late)
				}
				if after := time.Since(began); after < tt.least || after > tt.most || s.starved.Load() != tt.starved {
					t.Errorf("lost after %v, and %d times it was not; want %v to %v, and %d", after, s.starved.Load(), tt.least, tt.most, tt.starved)
				}
			})
		})
	}
}

// Whoever starves the hub at times hides no loss, and one at another time counts from the beginning.
func TestAByteEndsASilenceOfAStarvedHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &countingServer{}
		c, other := silentConn(t, s, loss)
		for range 3 {
			before := s.starved.Load()
			for s.starved.Load() < before+maxVoid && s.lost.Load() == 0 {
				checkLate(c, 400*time.Millisecond)
			}
			go func() { _, _ = io.WriteString(other, "a") }()
			if _, err := c.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		heard := time.Now()
		for s.lost.Load() == 0 {
			checkLate(c, 0)
		}
		if after := time.Since(heard); after != loss {
			t.Errorf("it is lost %v after the last byte, want %v", after, loss)
		}
	})
}

// Goroutines of the hub's own that never wait are as bad as other processes: an answer has to
// wait for all of them, though timers fire in time.
func TestAHubThatStarvesItselfKnows(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	s := &countingServer{}
	var busy sync.WaitGroup
	defer busy.Wait()
	var enough atomic.Bool
	defer enough.Store(true)
	for range 40 { // of 10 ms each
		busy.Go(func() {
			for !enough.Load() {
			}
		})
	}
	silentConn(t, s, 250*time.Millisecond)
	for s.starved.Load() == 0 && s.lost.Load() == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	if s.lost.Load() > 0 {
		t.Error("it takes the apiserver for lost")
	}
}
