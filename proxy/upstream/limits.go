package upstream

import (
	"cmp"
	"time"

	"github.com/edgehub-io/edgehub/proxy/upstream/liveness"
)

// Limits bound how long it takes to notice that an apiserver is lost, and that
// it is back. A zero field stands for its default.
type Limits struct {
	// Loss is how long an apiserver that owes an answer may send nothing at all.
	// It has to be longer than the slowest round trip and ping together: an
	// answer may take as long as it likes, but a ping is answered at once.
	Loss time.Duration
	// Probe is the time between two attempts to reach an apiserver that is lost.
	Probe time.Duration
	// IdlePing is the silence after which a connection with nothing but open
	// watches is asked for a sign of life. It costs some 200 bytes each time.
	IdlePing time.Duration
	// BadAnswers is how many answers 500, 502, 503, 504 or 429 within a minute make the
	// hub ask the apiserver, by itself, whether it serves the node.
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

func (l Limits) timeouts() liveness.Timeouts {
	return liveness.Timeouts{Loss: l.Loss, IdlePing: l.IdlePing}
}
