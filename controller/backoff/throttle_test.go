package backoff

import (
	"testing"
	"time"
)

func TestThrottle(t *testing.T) {
	var p Throttle
	now := time.Date(2026, 1, 1, 11, 0, 0, 0, time.UTC)
	if got := p.Delay(now); got > 0 {
		t.Errorf("the first step waits for %v", got)
	}
	p.Took(now, now.Add(5*time.Millisecond))
	if got, want := p.Delay(now.Add(5*time.Millisecond)), 20*time.Millisecond; got != want {
		t.Errorf("after a step of 5 ms the next waits for %v, want %v", got, want)
	}
	if got := p.Delay(now.Add(time.Second)); got > 0 {
		t.Errorf("a second later it waits for %v", got)
	}
	p.Took(now, now.Add(time.Minute))
	if got := p.Delay(now.Add(time.Minute)); got != maxThrottle {
		t.Errorf("after a long step it waits for %v, want %v", got, maxThrottle)
	}
}
