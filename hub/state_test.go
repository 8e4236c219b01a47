package hub

import (
	"context"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/hub/config"
)

func TestAFullHubIsAlive(t *testing.T) {
	n := newNode(t, echoToken)
	n.config.MaxConnections, n.config.CallerCheck = config.MinConnections, config.CheckOff // whoever comes is let in, up to the last
	h, _ := n.start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := h.alive(ctx); err != nil {
		t.Fatal(err)
	}

	for range config.MinConnections {
		c, err := net.Dial("tcp", n.config.ServeAddress)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	for !h.ports.isFull("--serve-port") && ctx.Err() == nil {
		runtime.Gosched()
	}
	if err := h.alive(ctx); err != nil {
		t.Error(err)
	}
	late, end := context.WithCancel(t.Context())
	end()
	if err := h.alive(late); err == nil {
		t.Error("a hub that was not heard in time lives")
	}
}
