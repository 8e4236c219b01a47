package spool

import (
	"context"
	"time"
)

// pace spreads what happens over time. It is for one goroutine.
type pace struct {
	interval time.Duration
	ahead    time.Duration // how much may be made up for at once
	next     time.Time
}

func newPace(perSecond float64, burst int) *pace {
	interval := time.Duration(float64(time.Second) / perSecond)
	return &pace{interval: interval, ahead: time.Duration(burst-1) * interval}
}

// wait returns nil when the next may happen, or ctx's error.
func (p *pace) wait(ctx context.Context) error {
	now := time.Now()
	if earliest := now.Add(-p.ahead); p.next.Before(earliest) {
		p.next = earliest
	}
	d := p.next.Sub(now)
	p.next = p.next.Add(p.interval)
	return sleep(ctx, d)
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
