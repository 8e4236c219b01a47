package upstream

import (
	"cmp"
	"time"
)

// Limits bound how long it takes to notice that an apiserver is lost, or back. A zero field
// means its default.
type Limits struct {
	// Loss is how long an apiserver may send nothing at all while a response is pending. It
	// must exceed the slowest round trip and ping together: a response may take any time, but
	// a ping is answered at once.
	Loss time.Duration
	// Probe is the interval of attempts to reach an apiserver that is lost.
	Probe time.Duration
	// IdlePing is the silence after which a connection with only idle watches is pinged. A
	// ping costs about 200 bytes.
	IdlePing time.Duration
	// BadAnswers is how many answers 500, 502, 503, 504 or 429 within a minute trigger a check
	// whether the apiserver serves the node.
	BadAnswers int
}

// The defaults of Limits.
const (
	DefaultLoss       = 2500 * time.Millisecond
	DefaultProbe      = time.Second
	DefaultIdlePing   = 10 * time.Second
	DefaultBadAnswers = 3
)

func (l Limits) withDefaults() Limits {
	return Limits{
		Loss:       cmp.Or(l.Loss, DefaultLoss),
		Probe:      cmp.Or(l.Probe, DefaultProbe),
		IdlePing:   cmp.Or(l.IdlePing, DefaultIdlePing),
		BadAnswers: cmp.Or(l.BadAnswers, DefaultBadAnswers),
	}
}
