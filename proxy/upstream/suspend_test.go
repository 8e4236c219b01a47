package upstream_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"
)

func TestHubThatStoodStillWhileItConnectedTriesAgain(t *testing.T) {
	inCloud(t, idle, local(), func(t *testing.T, c *cloud) {
		dial := c.networks[0].dial
		dials := 0
		c.upstream.SetDial(0, func(ctx context.Context, network, address string) (net.Conn, error) {
			if dials++; dials == 1 {
				<-ctx.Done()
				time.Sleep(time.Hour) // it was late to see that
				return nil, ctx.Err()
			}
			return dial(ctx, network, address)
		})
		c.mustGet(pods)
		if c.isLost() || strings.Count(c.log.String(), "WARN") != 1 || !strings.Contains(c.log.String(), "too little CPU") {
			t.Errorf("the apiserver was taken for lost, or the log does not say why not; log:\n%s", c.log)
		}
	})
}
