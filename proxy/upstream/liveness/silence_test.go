package liveness

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestTimeInWhichTheHubIsSuspendedDoesNotCount(t *testing.T) {
	const loss = 2500 * time.Millisecond
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
