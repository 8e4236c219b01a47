package backoff

import (
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/controller/podtest"
)

func TestThrottle(t *testing.T) {
	var p Throttle
	if got := p.Delay(podtest.Now); got > 0 {
		t.Errorf("the first step waits for %v", got)
	}
	p.Took(podtest.Now, podtest.Now.Add(5*time.Millisecond))
	if got, want := p.Delay(podtest.Now.Add(5*time.Millisecond)), 20*time.Millisecond; got != want {
		t.Errorf("after a step of 5 ms the next waits for %v, want %v", got, want)
	}
	if got := p.Delay(podtest.Now.Add(time.Second)); got > 0 {
		t.Errorf("a second later it waits for %v", got)
	}
	p.Took(podtest.Now, podtest.Now.Add(time.Minute))
	if got := p.Delay(podtest.Now.Add(time.Minute)); got != maxThrottle {
		t.Errorf("after a long step it waits for %v, want %v", got, maxThrottle)
	}
}
