package fuzzcache

import (
	"sync"
	"time"
)

// weather is what was wrong while a request was under way.
type weather int

const (
	// fair: the cloud was there, and had been for a while.
	fair weather = iota
	// offline: the cloud was away all the time, and the hub ran.
	offline
	// foul: anything else; answers may come from the cloud or the cache, or not at all.
	foul
)

func (w weather) String() string { return [...]string{"fair", "offline", "foul"}[w] }

// returnGrace is how long after an outage the hub may still take the cloud for lost: it
// looks each second, and the machine is busy.
const returnGrace = 10 * time.Second

// span is a time in which something is so. Without an end it goes on.
type span struct {
	what       string
	begin, end time.Time
}

// log has what was done to the links and the hub.
type log struct {
	mu      sync.Mutex
	outages []*span // nothing reaches any apiserver
	losses  []*span // ends of outages: when the hub knew that nothing reaches any apiserver
	trouble []*span // some connections break, or the hub does not run
	defined []*span // the kind of Widgets is defined anew
}

// during notes what is so until the function that it returns is called.
func (l *log) during(in *[]*span, what string) (end func()) {
	s := &span{what: what, begin: time.Now()}
	l.mu.Lock()
	defer l.mu.Unlock()
	*in = append(*in, s)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		s.end = time.Now()
	}
}

// of returns what was wrong between two times.
func (l *log) of(from, to time.Time) weather {
	l.mu.Lock()
	defer l.mu.Unlock()
	trouble := touched(l.trouble, from, to, returnGrace)
	for _, o := range l.outages {
		if o.begin.Before(from) && (o.end.IsZero() || to.Before(o.end)) {
			if touched(l.trouble, from, to, 0) {
				return foul
			}
			return offline
		}
	}
	if trouble || touched(l.outages, from, to, returnGrace) {
		return foul
	}
	return fair
}

func touched(all []*span, from, to time.Time, grace time.Duration) bool {
	for _, s := range all {
		if s.begin.Before(to) && (s.end.IsZero() || from.Before(s.end.Add(grace))) {
			return true
		}
	}
	return false
}

// wasRedefined reports whether the kind of Widgets was defined anew between two times, or so
// shortly before that an apiserver may not have ended its watches yet.
func (l *log) wasRedefined(from, to time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return touched(l.defined, from, to, returnGrace)
}

// hubDown reports whether the hub did not run at some time between two.
func (l *log) hubDown(from, to time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.trouble {
		if s.what == hubIsDown && s.begin.Before(to) && (s.end.IsZero() || from.Before(s.end)) {
			return true
		}
	}
	return false
}

// statusKept is how long after an outage the next one has to begin for the hub to show in it the statuses that the node has
// reported before. The hub drops them 15 s, and its jitter, after the return, unless it notices another loss by then. Silence
// counts as a loss after 2.5 s, and later while the hub gets too little CPU. So a black hole may come too late, and one that is
// too short to be noticed is no outage for the hub.
const statusKept = 8 * time.Second

// wasLost reports whether an outage that the hub has noticed ended so short a time ago.
func (l *log) wasLost(within time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return touched(l.losses, time.Now().Add(-within), time.Now(), 0)
}

const hubIsDown = "the hub does not run"
