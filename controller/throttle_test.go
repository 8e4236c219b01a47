package controller

import (
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/controller/podtest"
)

func TestThrottle(t *testing.T) {
	var p throttle
	if got := p.wait(podtest.Now); got > 0 {
		t.Errorf("the first step waits for %v", got)
	}
	p.took(podtest.Now, podtest.Now.Add(5*time.Millisecond))
	if got, want := p.wait(podtest.Now.Add(5*time.Millisecond)), 20*time.Millisecond; got != want {
		t.Errorf("after a step of 5 ms the next waits for %v, want %v", got, want)
	}
	if got := p.wait(podtest.Now.Add(time.Second)); got > 0 {
		t.Errorf("a second later it waits for %v", got)
	}
	p.took(podtest.Now, podtest.Now.Add(time.Minute))
	if got := p.wait(podtest.Now.Add(time.Minute)); got != maxThrottle {
		t.Errorf("after a long step it waits for %v, want %v", got, maxThrottle)
	}
}
