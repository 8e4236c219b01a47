package proxy

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestStoppedHubIsNoLoss(t *testing.T) {
	c := &Conn{timeouts: Limits{}.withDefaults().timeouts(), backlog: func() (uint64, bool) { return 0, false }}
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		c.waitingSince, c.strict, c.waiting = now, 1, 1
		c.due = now.Add(DefaultLoss)
		time.Sleep(time.Hour) // this process stood still, or the whole machine
		if _, next := c.checkLocked(time.Now()); next == closeConn {
			t.Error("the line was given up for a silence that nobody listened to")
		}
		c.due = time.Now().Add(DefaultLoss)
		time.Sleep(DefaultLoss)
		if _, next := c.checkLocked(time.Now()); next != closeConn {
			t.Error("the line was not given up afterwards")
		}
	})
}

func TestHubThatStoodStillWhileItConnectedTriesAgain(t *testing.T) {
	inCloud(t, idle, local(), func(t *testing.T, c *cloud) {
		dial := c.networks[0].dial
		dials := 0
		c.upstream.servers[0].conns.Network.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if dials++; dials == 1 {
				<-ctx.Done()
				time.Sleep(time.Hour) // it was late to see that
				return nil, ctx.Err()
			}
			return dial(ctx, network, address)
		}
		c.mustGet(pods)
		if c.isLost() || strings.Contains(c.log.String(), "WARN") {
			t.Errorf("the apiserver was taken for lost; log:\n%s", c.log)
		}
	})
}
