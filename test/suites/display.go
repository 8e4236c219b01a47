package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// silence is how long nothing may be printed for whoever waits. It is looked at once a second, which makes ten.
const silence = 9 * time.Second

// display is what whoever waits sees. When nothing has been printed for a while it prints what is
// going on. It is safe for concurrent use.
type display struct {
	mu      sync.Mutex
	out     io.Writer
	printed time.Time // the last time that something was
	now     []*activity
}

// activity is something that takes time: a step of a suite, or what is built beside it.
type activity struct {
	name   string
	began  time.Time
	counts string // how far it has come; "" if it does not say
}

func newDisplay(out io.Writer) *display { return &display{out: out, printed: time.Now()} }

// Write prints whole lines.
func (d *display) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.printed = time.Now()
	return d.out.Write(p)
}

// begin has an activity shown until end.
func (d *display) begin(name string) (a *activity, end func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a = &activity{name: name, began: time.Now()}
	d.now = append(d.now, a)
	return a, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		for i := range d.now {
			if d.now[i] == a {
				d.now = append(d.now[:i:i], d.now[i+1:]...)
				return
			}
		}
	}
}

// count says how far an activity has come.
func (d *display) count(a *activity, format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a.counts = ", " + fmt.Sprintf(format, args...)
}

// keep prints what is going on after each silence, until the function that it returns is called.
func (d *display) keep() (stop func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
				d.remind()
			}
		}
	}()
	return func() { close(ended); <-done }
}

func (d *display) remind() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if time.Since(d.printed) < silence || len(d.now) == 0 {
		return
	}
	var all []string
	for _, a := range d.now {
		all = append(all, fmt.Sprintf("%s: %.0f s%s", a.name, time.Since(a.began).Seconds(), a.counts))
	}
	d.printed = time.Now()
	fmt.Fprintln(d.out, "… "+strings.Join(all, "; "))
}
